//! De-duplication: which of a client's sequences a partition has applied already. The window is
//! part of the fold, so every replica skips the same repeats (`tools/docs/src/semantics.md`,
//! section 3).

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use crate::clock::Timestamp;
use crate::id::{ClientId, Sequence};
use crate::limits::{DEDUP_IDLE_US, DEDUP_WINDOW};

const WORDS: usize = (DEDUP_WINDOW / 64) as usize;
/// Size of a [`ClientWindow`] in every file, in bytes.
pub const WINDOW_BYTES: usize = 8 * (2 + WORDS);

/// Status of a sequence in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceStatus {
    /// Not applied yet.
    New,
    /// Applied already.
    Repeat,
    /// Below the window, which only a repeat can be.
    BelowWindow,
}

/// De-duplication window of one client: its highest sequence and a bit for each of the 1,024 below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientWindow {
    /// Highest sequence applied.
    pub highest: Sequence,
    /// Bit `highest - 1 - sequence` is set when that sequence was applied.
    pub below: [u64; WORDS],
    /// Partition time when the client was last seen.
    pub last_seen: Timestamp,
}

impl ClientWindow {
    /// Encodes the window for checkpoints, live copies and shards: `highest u64 | last_seen_us i64
    /// | below u64 * 16`.
    pub fn to_bytes(&self) -> [u8; WINDOW_BYTES] {
        let mut bytes = [0; WINDOW_BYTES];
        let head = [self.highest.0.to_le_bytes(), self.last_seen.as_micros().to_le_bytes()];
        let words = head.into_iter().chain(self.below.iter().map(|word| word.to_le_bytes()));
        bytes.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        bytes
    }

    /// Decodes a window; any bytes are valid.
    pub fn from_bytes(bytes: &[u8; WINDOW_BYTES]) -> Self {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or_default();
        let (highest, last_seen) = (Sequence(next()), Timestamp::from_micros(next() as i64));
        Self { highest, last_seen, below: std::array::from_fn(|_| next()) }
    }

    fn new(highest: Sequence, last_seen: Timestamp) -> Self {
        Self { highest, below: [0; WORDS], last_seen }
    }

    fn status(&self, sequence: Sequence) -> SequenceStatus {
        if sequence > self.highest {
            return SequenceStatus::New;
        }
        let Some(distance) = (self.highest.0 - sequence.0).checked_sub(1) else {
            return SequenceStatus::Repeat;
        };
        if distance >= DEDUP_WINDOW {
            return SequenceStatus::BelowWindow;
        }
        let bit = self.below[(distance / 64) as usize] >> (distance % 64) & 1;
        if bit == 1 { SequenceStatus::Repeat } else { SequenceStatus::New }
    }

    fn record(&mut self, sequence: Sequence) {
        if sequence > self.highest {
            let distance = sequence.0 - self.highest.0;
            self.shift(distance);
            self.set(distance - 1);
            self.highest = sequence;
        } else if sequence < self.highest {
            self.set(self.highest.0 - sequence.0 - 1);
        }
    }

    fn set(&mut self, distance: u64) {
        if distance < DEDUP_WINDOW {
            self.below[(distance / 64) as usize] |= 1 << (distance % 64);
        }
    }

    fn shift(&mut self, distance: u64) {
        if distance >= DEDUP_WINDOW {
            self.below = [0; WORDS];
            return;
        }
        let (words, bits) = ((distance / 64) as usize, distance % 64);
        for word in (0..WORDS).rev() {
            let high = word.checked_sub(words).map_or(0, |from| self.below[from]);
            let low = word.checked_sub(words + 1).map_or(0, |from| self.below[from]);
            self.below[word] = if bits == 0 { high } else { high << bits | low >> (64 - bits) };
        }
    }
}

/// Handle that records sequences of one client in its window.
pub struct SequenceRecorder<'d> {
    window: &'d mut ClientWindow,
    /// Whether the window was created for the first sequence, which it holds already.
    is_new: bool,
}

impl SequenceRecorder<'_> {
    /// Returns the status of this sequence and records it. The first call must pass the sequence
    /// that the recorder was created with.
    pub fn record(&mut self, sequence: Sequence) -> SequenceStatus {
        if std::mem::take(&mut self.is_new) {
            return SequenceStatus::New;
        }
        let status = self.window.status(sequence);
        if status == SequenceStatus::New {
            self.window.record(sequence);
        }
        status
    }
}

/// The windows of all clients of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dedup {
    clients: HashMap<ClientId, ClientWindow>,
    by_last_seen: BTreeSet<(Timestamp, ClientId)>,
}

impl Dedup {
    /// Returns the status of this client's sequence at this partition time.
    pub fn status(&self, client: ClientId, sequence: Sequence, now: Timestamp) -> SequenceStatus {
        match self.clients.get(&client) {
            Some(window) if !is_idle(window.last_seen, now) => window.status(sequence),
            _ => SequenceStatus::New,
        }
    }

    /// Returns the status of this sequence and records it at this partition time. A repeat also
    /// proves that its client is not idle.
    pub fn record(
        &mut self,
        client: ClientId,
        sequence: Sequence,
        now: Timestamp,
    ) -> SequenceStatus {
        self.recorder(client, sequence, now).record(sequence)
    }

    /// Returns a recorder of several sequences of one client that start with this one; see
    /// [`Dedup::record`].
    pub fn recorder(
        &mut self,
        client: ClientId,
        first: Sequence,
        now: Timestamp,
    ) -> SequenceRecorder<'_> {
        self.forget_idle(now);
        match self.clients.entry(client) {
            Entry::Occupied(entry) => {
                let window = entry.into_mut();
                let before = std::mem::replace(&mut window.last_seen, now);
                if before != now {
                    self.by_last_seen.remove(&(before, client));
                    self.by_last_seen.insert((now, client));
                }
                SequenceRecorder { window, is_new: false }
            }
            Entry::Vacant(entry) => {
                self.by_last_seen.insert((now, client));
                let window = entry.insert(ClientWindow::new(first, now));
                SequenceRecorder { window, is_new: true }
            }
        }
    }

    /// Forgets the clients that are idle at this partition time, and returns their ids. The fold
    /// calls it for every entry, so the windows depend on the log alone.
    pub fn forget_idle(&mut self, now: Timestamp) -> Vec<ClientId> {
        let mut forgotten_clients = Vec::new();
        while let Some((last_seen, client)) = self.by_last_seen.first().copied()
            && is_idle(last_seen, now)
        {
            self.by_last_seen.pop_first();
            self.clients.remove(&client);
            forgotten_clients.push(client);
        }
        forgotten_clients
    }

    /// Returns the window of a client; `None` if the client was never seen or was forgotten.
    pub fn window(&self, client: ClientId) -> Option<&ClientWindow> {
        self.clients.get(&client)
    }

    /// Returns the windows, ordered by client, for checkpoints and comparisons.
    pub fn windows(&self) -> Vec<(ClientId, &ClientWindow)> {
        let mut windows: Vec<_> = self.clients.iter().map(|(id, window)| (*id, window)).collect();
        windows.sort_by_key(|(id, _)| *id);
        windows
    }

    /// Restores a window from a checkpoint.
    pub fn restore(&mut self, client: ClientId, window: ClientWindow) {
        if let Some(before) = self.clients.get(&client) {
            self.by_last_seen.remove(&(before.last_seen, client));
        }
        self.by_last_seen.insert((window.last_seen, client));
        self.clients.insert(client, window);
    }
}

fn is_idle(last_seen: Timestamp, now: Timestamp) -> bool {
    now.micros_since(last_seen) >= DEDUP_IDLE_US
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const CLIENT: ClientId = ClientId(7);
    const NOW: Timestamp = Timestamp::from_micros(1_000);

    proptest! {
        /// Compares the window with a set that forgets nothing: inside the window both agree.
        #[test]
        fn window_equals_a_set(steps in prop::collection::vec((0u64..2_500, 0u64..1_500), 1..300)) {
            let mut dedup = Dedup::default();
            let mut model = BTreeSet::new();
            let mut top = 1u64;
            for (jump, distance) in steps {
                top += if jump > 2_400 { jump } else { jump % 7 };
                let sequence = Sequence(top.saturating_sub(distance % 1_100).max(1));
                let highest = model.last().copied().unwrap_or(sequence);
                let expected = if model.contains(&sequence) {
                    SequenceStatus::Repeat
                } else {
                    SequenceStatus::New
                };
                let status = dedup.status(CLIENT, sequence, NOW);
                prop_assert_eq!(dedup.record(CLIENT, sequence, NOW), status);
                if highest.0.saturating_sub(sequence.0) <= DEDUP_WINDOW {
                    prop_assert_eq!(status, expected);
                } else {
                    prop_assert_eq!(status, SequenceStatus::BelowWindow);
                }
                if status == SequenceStatus::New {
                    model.insert(sequence);
                }
            }
        }
    }

    #[test]
    fn client_windows_round_trip() {
        let mut window = ClientWindow::new(Sequence(1), Timestamp::from_micros(-7));
        (2..900).step_by(3).for_each(|sequence| window.record(Sequence(sequence)));
        let bytes = window.to_bytes();
        assert_eq!((&bytes[..8], &bytes[8..10]), (&899u64.to_le_bytes()[..], &[0xf9, 0xff][..]));
        assert_eq!(ClientWindow::from_bytes(&bytes), window);
    }

    #[test]
    fn client_idle_for_a_day_is_forgotten() {
        let mut dedup = Dedup::default();
        dedup.record(CLIENT, Sequence(5), NOW);
        let day = NOW.plus_micros(DEDUP_IDLE_US);
        assert_eq!(dedup.status(CLIENT, Sequence(5), day.plus_micros(-1)), SequenceStatus::Repeat);
        assert_eq!(dedup.status(CLIENT, Sequence(5), day), SequenceStatus::New);
        dedup.forget_idle(day);
        assert_eq!(dedup, Dedup::default());
    }

    /// Proves that a client which only retries is not idle: if the partition forgot it, the next
    /// retry would be applied twice.
    #[test]
    fn repeat_keeps_its_client_remembered() {
        let mut dedup = Dedup::default();
        dedup.record(CLIENT, Sequence(5), NOW);
        let evening = NOW.plus_micros(DEDUP_IDLE_US - 1);
        assert_eq!(dedup.record(CLIENT, Sequence(5), evening), SequenceStatus::Repeat);
        assert_eq!(
            dedup.record(CLIENT, Sequence(5), evening.plus_micros(2)),
            SequenceStatus::Repeat
        );
    }

    #[test]
    fn window_covers_1024_sequences_below_the_highest() {
        let mut dedup = Dedup::default();
        dedup.record(CLIENT, Sequence(2_000), NOW);
        assert_eq!(dedup.record(CLIENT, Sequence(2_000 - DEDUP_WINDOW), NOW), SequenceStatus::New);
        assert_eq!(
            dedup.record(CLIENT, Sequence(2_000 - DEDUP_WINDOW), NOW),
            SequenceStatus::Repeat
        );
        assert_eq!(
            dedup.record(CLIENT, Sequence(1_999 - DEDUP_WINDOW), NOW),
            SequenceStatus::BelowWindow
        );
        assert_eq!(dedup.record(CLIENT, Sequence(u64::MAX), NOW), SequenceStatus::New);
        assert_eq!(dedup.record(CLIENT, Sequence(0), NOW), SequenceStatus::BelowWindow);
        assert_eq!(dedup.record(CLIENT, Sequence(u64::MAX), NOW), SequenceStatus::Repeat);
    }

    #[test]
    fn end_of_time_does_not_forget_a_new_client() {
        let mut dedup = Dedup::default();
        let end = Timestamp::from_micros(i64::MAX);
        dedup.record(CLIENT, Sequence(1), end);
        assert_eq!(dedup.record(CLIENT, Sequence(1), end), SequenceStatus::Repeat);
    }

    #[test]
    fn restored_windows_are_forgotten_in_their_turn() {
        let mut dedup = Dedup::default();
        dedup.record(CLIENT, Sequence(1), NOW);
        dedup.restore(CLIENT, ClientWindow::new(Sequence(9), NOW.plus_micros(10)));
        dedup.forget_idle(NOW.plus_micros(DEDUP_IDLE_US));
        assert_eq!(dedup.windows().len(), 1);
        dedup.forget_idle(NOW.plus_micros(DEDUP_IDLE_US + 10));
        assert_eq!(dedup, Dedup::default());
    }
}
