//! What the checker knows: the history of every key, as whoever wrote it knows it.
//!
//! Each key has one writer, which waits for each change to settle before it makes the next. So the
//! states of a key form a line; a read must show a state on that line, never one before a state
//! that the same reader has shown, and after a token exactly the newest.

use std::collections::BTreeMap;

/// A document of the simulated store; `None` is no document.
pub type State = Option<Fields>;

/// The fields of a simulated document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// Set by every change that leaves a document, to a number of its own.
    pub revision: i64,
    /// Incremented by some changes.
    pub total: i64,
    /// Set by some changes.
    pub note: Option<String>,
}

/// The line of states of one key; the first is "no document".
#[derive(Clone, Debug)]
pub struct History {
    states: Vec<State>,
    /// The last change is not settled: a read may show it or the one before.
    pending: bool,
}

impl Default for History {
    fn default() -> Self {
        Self { states: vec![None], pending: false }
    }
}

impl History {
    /// The newest state.
    pub fn newest(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    /// A change is about to be sent.
    pub fn begin(&mut self, next: State) {
        self.states.push(next);
        self.pending = true;
    }

    /// The change is acknowledged.
    pub fn settle(&mut self) {
        self.pending = false;
    }

    /// The place on the line, from `seen` on, that a read may have shown.
    fn place(&self, shown: &State, seen: usize) -> Option<usize> {
        (seen..self.states.len()).find(|place| self.states[*place] == *shown)
    }
}

/// Which places of each key's line a reader has shown.
#[derive(Debug, Default)]
pub struct Shown(BTreeMap<i64, usize>);

/// All keys.
#[derive(Debug, Default)]
pub struct Expected {
    keys: BTreeMap<i64, History>,
}

impl Expected {
    /// The history of a key.
    pub fn key(&mut self, key: i64) -> &mut History {
        self.keys.entry(key).or_default()
    }

    /// Holds a local read against the line: it may be behind, but never turns back.
    ///
    /// # Errors
    /// What is wrong, with the key.
    pub fn check_local(&mut self, key: i64, shown: &State, by: &mut Shown) -> Result<(), String> {
        let history = self.keys.entry(key).or_default();
        let seen = by.0.entry(key).or_default();
        match history.place(shown, *seen) {
            Some(place) => {
                *seen = place;
                Ok(())
            }
            None => Err(format!(
                "key {key}: a local read shows {shown:?}, which is no state from place {seen} on \
                 of {:?}",
                history.states
            )),
        }
    }

    /// Holds a read after the token of the newest change against the line: it shows the newest.
    ///
    /// # Errors
    /// What is wrong, with the key.
    pub fn check_newest(&mut self, key: i64, shown: &State) -> Result<(), String> {
        let history = self.keys.entry(key).or_default();
        if !history.pending && shown == history.newest() {
            return Ok(());
        }
        let newest = history.newest();
        Err(format!("key {key}: a read after its token shows {shown:?}, expected {newest:?}"))
    }

    /// Holds all documents of a store against all lines.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_all(&self, found: &BTreeMap<i64, Fields>) -> Result<(), String> {
        for (key, history) in &self.keys {
            if history.pending {
                return Err(format!("key {key}: its last change never settled"));
            }
            let shown = found.get(key).cloned();
            if shown != *history.newest() {
                let newest = history.newest();
                return Err(format!("key {key}: at the end {shown:?}, expected {newest:?}"));
            }
        }
        match found.keys().find(|key| !self.keys.contains_key(key)) {
            Some(key) => Err(format!("key {key}: nobody wrote it")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(revision: i64) -> State {
        Some(Fields { revision, ..Fields::default() })
    }

    #[test]
    fn a_reader_may_be_behind_but_never_turns_back() {
        let mut expected = Expected::default();
        for revision in 1..=3 {
            expected.key(7).begin(state(revision));
            expected.key(7).settle();
        }
        let mut shown = Shown::default();
        assert!(expected.check_local(7, &state(2), &mut shown).is_ok());
        assert!(expected.check_local(7, &state(2), &mut shown).is_ok());
        assert!(expected.check_local(7, &state(1), &mut shown).is_err());
        assert!(expected.check_local(7, &state(9), &mut shown).is_err());
        assert!(expected.check_newest(7, &state(2)).is_err());
        assert!(expected.check_newest(7, &state(3)).is_ok());
    }

    #[test]
    fn the_end_must_be_complete_and_nothing_else() {
        let mut expected = Expected::default();
        expected.key(1).begin(state(1));
        assert!(expected.check_all(&BTreeMap::new()).is_err());
        expected.key(1).settle();
        assert!(expected.check_all(&BTreeMap::new()).is_err());
        let mut found = BTreeMap::from([(1, state(1).unwrap())]);
        assert!(expected.check_all(&found).is_ok());
        found.insert(2, Fields::default());
        assert!(expected.check_all(&found).is_err());
    }
}
