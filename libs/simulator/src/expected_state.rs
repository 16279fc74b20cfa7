//! The checker's knowledge: the history of every key, as its writer knows it.
//!
//! Each key has one writer, which waits until each change is acknowledged before it sends the next.
//! The states of a key therefore form a line. A read must show a state on that line, never a state
//! before one that the same reader has shown, and after a token exactly the newest state. A state
//! with a time to live is followed by "no document", at a time that is known up to the duration of
//! its write.

use std::collections::BTreeMap;

use forebay_core::clock::Timestamp;

use super::clock::Moment;

/// A document of the simulated store; `None` is no document.
pub type State = Option<Fields>;

/// The fields of a simulated document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// Unique number of the change; set by every change that leaves a document.
    pub revision: i64,
    /// Counter that some changes increment.
    pub total: i64,
    /// Text that some changes set.
    pub note: Option<String>,
    /// Value of the field that the administrator adds and drops.
    pub passing: Option<i64>,
}

/// A state on a key's line.
#[derive(Clone, Debug)]
struct Step {
    state: State,
    ttl_us: Option<i64>,
    /// Clock just before the change was sent.
    sent_at: Moment,
    /// Clock when the change was acknowledged; `None` until then.
    acknowledged: Option<Moment>,
}

impl Step {
    /// Returns the time before which the entry was certainly not appended.
    fn appended_from(&self, now: Moment) -> Timestamp {
        let acknowledged_at = self.acknowledged.unwrap_or(now);
        self.sent_at.now.plus_micros(self.sent_at.fallen_us - acknowledged_at.fallen_us)
    }

    /// Returns whether a reader may see the state expired.
    fn may_be_expired(&self, now: Moment) -> bool {
        self.ttl_us.is_some_and(|ttl| now.high >= self.appended_from(now).plus_micros(ttl))
    }

    /// Returns whether no reader may see the state alive.
    fn must_be_expired(&self, now: Moment) -> bool {
        let appended_until = self.acknowledged.map(|acknowledged| acknowledged.high);
        appended_until.zip(self.ttl_us).is_some_and(|(at, ttl)| now.now >= at.plus_micros(ttl))
    }

    fn may_show(&self, read_state: &State, now: Moment) -> bool {
        match read_state {
            None => self.state.is_none() || self.may_be_expired(now),
            read_state => *read_state == self.state && !self.must_be_expired(now),
        }
    }
}

/// The line of states of one key; before the first state there is no document.
#[derive(Clone, Debug, Default)]
pub struct History {
    steps: Vec<Step>,
}

impl History {
    /// Returns the newest state, acknowledged or not, as if nothing expired.
    pub fn newest(&self) -> State {
        self.steps.last().and_then(|step| step.state.clone())
    }

    /// Notes that a change is about to be sent.
    pub fn begin(&mut self, state: State, ttl_us: Option<i64>, sent_at: Moment) {
        self.steps.push(Step { state, ttl_us, sent_at, acknowledged: None });
    }

    /// Notes that the newest change is acknowledged.
    pub fn acknowledge(&mut self, acknowledged: Moment) {
        if let Some(newest) = self.steps.last_mut() {
            newest.acknowledged.get_or_insert(acknowledged);
        }
    }

    fn is_pending(&self) -> bool {
        self.steps.last().is_some_and(|newest| newest.acknowledged.is_none())
    }

    /// Returns the first index on the line, from `from` on, that a read may have shown; index 0 is
    /// before the first state.
    fn place(&self, read_state: &State, from: usize, now: Moment) -> Option<usize> {
        (from..=self.steps.len()).find(|place| match place.checked_sub(1) {
            None => read_state.is_none(),
            Some(step) => self.steps[step].may_show(read_state, now),
        })
    }

    /// Returns the last index whose change was acknowledged when the clock had never shown
    /// `before`.
    fn acknowledged_before(&self, before: Timestamp) -> usize {
        let is_older =
            |step: &Step| step.acknowledged.is_some_and(|acknowledged| acknowledged.high < before);
        self.steps.iter().rposition(is_older).map_or(0, |step| step + 1)
    }

    fn acknowledged_place(&self) -> usize {
        self.steps.len() - usize::from(self.is_pending())
    }

    fn states_from(&self, from: usize) -> Vec<&State> {
        self.steps.iter().skip(from.saturating_sub(1)).map(|step| &step.state).collect()
    }
}

/// The index on each key's line that a reader has shown or must be past.
#[derive(Clone, Debug, Default)]
pub struct ShownHistory(BTreeMap<i64, usize>);

/// The histories of all keys.
#[derive(Debug, Default)]
pub struct ExpectedState {
    keys: BTreeMap<i64, History>,
}

impl ExpectedState {
    /// Returns the history of a key.
    pub fn key(&mut self, key: i64) -> &mut History {
        self.keys.entry(key).or_default()
    }

    /// Forgets the keys that were lost with a log.
    pub fn forget(&mut self, is_lost: impl Fn(i64) -> bool) {
        self.keys.retain(|key, _| !is_lost(*key));
    }

    /// Returns the lower bound of a reader that catches up from now on: everything that is
    /// acknowledged.
    pub fn acknowledged(&self) -> ShownHistory {
        ShownHistory(
            self.keys.iter().map(|(key, history)| (*key, history.acknowledged_place())).collect(),
        )
    }

    /// Checks a local read against the line: it may be behind, but never goes back. `no_older` is
    /// the reader's clock minus the read's age bound.
    ///
    /// # Errors
    /// Returns the violation, with the key.
    pub fn check_local(
        &mut self,
        key: i64,
        read_state: &State,
        shown_history: &mut ShownHistory,
        no_older: Option<Timestamp>,
        now: Moment,
    ) -> Result<(), String> {
        let history = self.keys.entry(key).or_default();
        let newest_seen = shown_history.0.entry(key).or_default();
        let place_min = no_older.map_or(0, |before| history.acknowledged_before(before));
        let from = place_min.max(*newest_seen);
        match history.place(read_state, from, now) {
            Some(place) => {
                *newest_seen = place;
                Ok(())
            }
            None => {
                let reason = if place_min > *newest_seen {
                    "too old for its bound"
                } else {
                    "behind itself"
                };
                let states = history.states_from(from);
                Err(format!(
                    "key {key}: a local read is {reason}: it shows {read_state:?}, which is none \
                     of place {from} on: {states:?}"
                ))
            }
        }
    }

    /// Checks a read after the newest change against the line: it must show the newest state.
    ///
    /// # Errors
    /// Returns the violation, with the key.
    pub fn check_newest(
        &mut self,
        key: i64,
        read_state: &State,
        shown_history: &mut ShownHistory,
        now: Moment,
    ) -> Result<(), String> {
        let history = self.keys.entry(key).or_default();
        let newest = history.steps.len();
        if !history.is_pending() && history.place(read_state, newest, now) == Some(newest) {
            shown_history.0.insert(key, newest);
            return Ok(());
        }
        let newest = history.newest();
        Err(format!(
            "key {key}: a read past its newest change shows {read_state:?}, not {newest:?}"
        ))
    }

    /// Checks all documents of a store, of the partitions that `follows` selects, against all
    /// lines.
    ///
    /// # Errors
    /// Returns the first difference.
    pub fn check_all(
        &self,
        found: &BTreeMap<i64, Fields>,
        follows: impl Fn(i64) -> bool,
        now: Moment,
    ) -> Result<(), String> {
        for (key, history) in self.keys.iter().filter(|(key, _)| follows(**key)) {
            if history.is_pending() {
                return Err(format!("key {key}: its last change was never acknowledged"));
            }
            let read_state = found.get(key).cloned();
            if history.place(&read_state, history.steps.len(), now).is_none() {
                let newest = history.newest();
                return Err(format!("key {key}: at the end {read_state:?}, expected {newest:?}"));
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

    fn at(micros: i64) -> Moment {
        let now = Timestamp::from_micros(micros);
        Moment { now, high: now, fallen_us: 0 }
    }

    fn three_states() -> ExpectedState {
        let mut expected = ExpectedState::default();
        for revision in 1..=3 {
            expected.key(7).begin(state(revision), None, at(revision * 10));
            expected.key(7).acknowledge(at(revision * 10 + 5));
        }
        expected
    }

    #[test]
    fn reader_may_be_behind_but_never_goes_back() {
        let (mut expected, mut shown_history, now) =
            (three_states(), ShownHistory::default(), at(100));
        let mut local = |revision, shown_history: &mut ShownHistory| {
            expected.check_local(7, &state(revision), shown_history, None, now)
        };
        assert!(local(2, &mut shown_history).is_ok());
        assert!(local(2, &mut shown_history).is_ok());
        assert!(local(1, &mut shown_history).is_err());
        assert!(local(9, &mut shown_history).is_err());
        assert!(expected.check_newest(7, &state(2), &mut shown_history, now).is_err());
        assert!(expected.check_newest(7, &state(3), &mut shown_history, now).is_ok());
        assert!(expected.check_local(7, &state(2), &mut shown_history, None, now).is_err());
    }

    #[test]
    fn age_bound_excludes_states_replaced_before_it() {
        let (mut expected, now) = (three_states(), at(100));
        let mut bounded = |no_older| {
            let no_older = Some(Timestamp::from_micros(no_older));
            expected.check_local(7, &state(2), &mut ShownHistory::default(), no_older, now)
        };
        assert!(bounded(25).is_ok());
        assert!(bounded(35).is_ok());
        assert!(bounded(36).is_err());
    }

    #[test]
    fn caught_up_reader_has_every_acknowledged_document() {
        let mut expected = three_states();
        expected.key(7).begin(state(4), None, at(50));
        let mut shown_history = expected.acknowledged();
        assert!(expected.check_local(7, &None, &mut shown_history, None, at(60)).is_err());
        assert!(expected.check_local(7, &state(2), &mut shown_history, None, at(60)).is_err());
        assert!(expected.check_local(7, &state(3), &mut shown_history, None, at(60)).is_ok());
    }

    #[test]
    fn expiry_is_between_two_bounds() {
        let mut expected = ExpectedState::default();
        expected.key(1).begin(state(1), Some(100), at(10));
        expected.key(1).acknowledge(at(30));
        let mut check = |read_state: &State, now| {
            expected.check_local(
                1,
                read_state,
                &mut ShownHistory(BTreeMap::from([(1, 1)])),
                None,
                at(now),
            )
        };
        assert!(check(&None, 109).is_err());
        assert!(check(&None, 110).is_ok());
        assert!(check(&state(1), 129).is_ok());
        assert!(check(&state(1), 130).is_err());
    }

    #[test]
    fn fallen_clock_may_have_stamped_earlier_times() {
        let mut expected = ExpectedState::default();
        expected.key(1).begin(state(1), Some(100), at(50));
        let after_fall = |micros| Moment { fallen_us: 30, high: at(60).high, ..at(micros) };
        expected.key(1).acknowledge(after_fall(30));
        let mut shown_history = ShownHistory(BTreeMap::from([(1, 1)]));
        let high = Moment { high: at(120).high, ..after_fall(90) };
        assert!(expected.check_local(1, &None, &mut shown_history, None, high).is_ok());
        assert!(expected.check_local(1, &state(1), &mut shown_history, None, high).is_ok());
    }

    #[test]
    fn final_state_must_be_complete_and_contain_nothing_else() {
        let (mut expected, now) = (ExpectedState::default(), at(9));
        expected.key(1).begin(state(1), None, at(1));
        assert!(expected.check_all(&BTreeMap::new(), |_| true, now).is_err());
        expected.key(1).acknowledge(at(2));
        assert!(expected.check_all(&BTreeMap::new(), |_| true, now).is_err());
        assert!(expected.check_all(&BTreeMap::new(), |_| false, now).is_ok());
        let mut found = BTreeMap::from([(1, state(1).unwrap())]);
        assert!(expected.check_all(&found, |_| true, now).is_ok());
        found.insert(2, Fields::default());
        assert!(expected.check_all(&found, |_| true, now).is_err());
    }
}
