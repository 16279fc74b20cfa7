//! Outcomes of conditional changes, and the bounded table in which a replica stores them.

use std::collections::{HashMap, VecDeque};

use crate::id::{ClientId, DocumentVersion, Position, Sequence};
use crate::limits::OUTCOMES_KEPT;

/// Outcome of a conditional change's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionOutcome {
    /// The condition held and the change happened.
    Applied,
    /// The condition did not hold; the version is the document's, if the store has versions.
    ConditionFailed(Option<DocumentVersion>),
    /// The document would have exceeded the size limit; nothing happened.
    TooLarge,
}

/// The outcome of one change of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Client that sent the change.
    pub client: ClientId,
    /// The client's number of the change.
    pub sequence: Sequence,
    /// Position of the change in the log.
    pub position: Position,
    /// Outcome of the condition.
    pub condition: ConditionOutcome,
}

/// The outcomes of a partition's last conditional changes.
#[derive(Clone, Debug)]
pub struct OutcomeTable {
    capacity: usize,
    order: VecDeque<(ClientId, Sequence)>,
    outcomes: HashMap<(ClientId, Sequence), Outcome>,
}

impl Default for OutcomeTable {
    fn default() -> Self {
        Self::with_capacity(OUTCOMES_KEPT)
    }
}

impl OutcomeTable {
    /// Creates a table that holds this many outcomes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), order: VecDeque::new(), outcomes: HashMap::new() }
    }

    /// Stores an outcome. If the change has an outcome already, the first one stays; if the table
    /// is full, the oldest outcome is evicted.
    pub fn keep(&mut self, outcome: Outcome) {
        let key = (outcome.client, outcome.sequence);
        if self.outcomes.contains_key(&key) {
            return;
        }
        if self.order.len() == self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.outcomes.remove(&oldest);
        }
        self.order.push_back(key);
        self.outcomes.insert(key, outcome);
    }

    /// Returns the outcome of this client's change, if the table still holds it.
    pub fn get(&self, client: ClientId, sequence: Sequence) -> Option<Outcome> {
        self.outcomes.get(&(client, sequence)).copied()
    }

    /// Returns all outcomes in the table, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Outcome> {
        self.order.iter().filter_map(|key| self.outcomes.get(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(sequence: u64, condition: ConditionOutcome) -> Outcome {
        let (client, position) = (ClientId(1), Position::default());
        Outcome { client, sequence: Sequence(sequence), position, condition }
    }

    #[test]
    fn full_outcome_table_evicts_the_oldest_and_retains_the_first_verdict() {
        let mut table = OutcomeTable::with_capacity(2);
        table.keep(outcome(1, ConditionOutcome::Applied));
        table.keep(outcome(1, ConditionOutcome::ConditionFailed(None)));
        assert_eq!(
            table.get(ClientId(1), Sequence(1)).unwrap().condition,
            ConditionOutcome::Applied
        );
        table.keep(outcome(2, ConditionOutcome::Applied));
        table.keep(outcome(3, ConditionOutcome::Applied));
        assert_eq!(table.get(ClientId(1), Sequence(1)), None);
        assert!(table.get(ClientId(1), Sequence(3)).is_some());
        assert_eq!(table.all().map(|outcome| outcome.sequence.0).collect::<Vec<_>>(), [2, 3]);
    }
}
