//! The fold's state as rows that a shard stores next to its documents. The head changes with every
//! entry. Client windows, source positions, outcomes of the last conditional changes, and skipped
//! records without a dead letter yet have a row each. Bytes: `proto/spec/shard.md`.

use std::collections::{BTreeMap, BTreeSet};

use crate::byte_reader::ByteReader;
use crate::clock::Timestamp;
use crate::dedup::ClientWindow;
use crate::error::{Error, ErrorCode, Result};
use crate::fold::{FoldEffects, PartitionState};
use crate::id::{
    ClientId, DocumentVersion, LogId, Offset, POSITION_BYTES, PartitionCount, PartitionId,
    PartitionRef, Position, SchemaVersion, Sequence, StoreId,
};
use crate::limits::OUTCOMES_KEPT;
use crate::outcome::{ConditionOutcome, Outcome, OutcomeTable};

/// First byte of every key that does not belong to a document.
const STATE: u8 = b's';
/// Key of the head.
pub const HEAD: &[u8] = &[STATE, b'h'];
/// First key that a row of the state may have.
pub const STATE_FROM: &[u8] = &[STATE];
/// First key after all rows of the state.
pub const STATE_TO: &[u8] = &[STATE + 1];

const CLIENT: u8 = b'c';
const SOURCE: u8 = b'p';
const OUTCOME: u8 = b'o';
const SKIPPED: u8 = b'k';

const HEAD_VERSION: u16 = 1;
const FLAG_LOG: u16 = 1;
const FLAG_APPEND_TIME: u16 = 1 << 1;
const FLAG_OPENED: u16 = 1 << 2;
const FLAG_SERVED: u16 = 1 << 3;
const FLAGS_KNOWN: u16 = FLAG_LOG | FLAG_APPEND_TIME | FLAG_OPENED | FLAG_SERVED;
const OUTCOME_BYTES: usize = 16 + 8 + POSITION_BYTES + 1 + 8;

const APPLIED: u8 = 0;
const CONDITION_FAILED: u8 = 1;
const CONDITION_FAILED_VERSIONED: u8 = 2;
const TOO_LARGE: u8 = 3;

/// Knowledge about the log that a shard follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowState {
    /// Append time of the last entry applied.
    pub append_time: Option<Timestamp>,
    /// Start and end of the log when the shard was first opened on it.
    pub opened: Option<(Offset, Offset)>,
    /// Number of the copy, from 1.
    pub copy: u32,
    /// Whether the copy serves: a copy that is built while another one serves does not serve yet.
    pub is_served: bool,
}

/// State with which a shard resumes after a restart.
#[derive(Debug)]
pub struct RestoredState {
    /// The fold's state.
    pub state: PartitionState,
    /// Knowledge about the log.
    pub follow_state: FollowState,
    /// Outcomes of the last conditional changes.
    pub outcomes: OutcomeTable,
    /// Number of the next outcome.
    pub next_outcome: u64,
    /// Skipped records whose dead letters may not be durable yet, by offset.
    pub skipped: BTreeMap<Offset, SkippedRecord>,
}

/// Reason for which a record was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedRecord {
    /// Id of the log that the shard followed; `None` before the log's first well-formed entry.
    pub log_id: Option<LogId>,
    /// The reason, without its context, which is not stored.
    pub reason: Error,
}

/// The row that changes with every entry: a [`PartitionState`] without the parts that have rows of
/// their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The partition.
    pub at: PartitionRef,
    /// Partition count of its store.
    pub partitions: PartitionCount,
    /// Id of the log.
    pub log_id: Option<LogId>,
    /// Position of the last entry applied.
    pub position: Position,
    /// First offset not yet applied.
    pub offset_applied: Offset,
    /// Running maximum of append times.
    pub partition_time: Timestamp,
    /// Newest schema version that the partition has seen.
    pub schema_version: SchemaVersion,
    /// Number of drop-alls that were applied.
    pub drop_all_count: u32,
    /// Knowledge about the log.
    pub follow_state: FollowState,
    /// Number of the next outcome.
    pub next_outcome: u64,
}

impl Head {
    /// Creates the head of a state.
    pub fn of(state: &PartitionState, follow_state: FollowState, next_outcome: u64) -> Self {
        Self {
            at: state.partition,
            partitions: state.partitions,
            log_id: state.log_id,
            position: state.position,
            offset_applied: state.offset_applied,
            partition_time: state.partition_time,
            schema_version: state.schema_version,
            drop_all_count: state.drop_all_count,
            follow_state,
            next_outcome,
        }
    }

    /// Encodes the head.
    pub fn encode(&self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let FollowState { append_time, opened, copy, is_served } = self.follow_state;
        let flags = flag(self.log_id.is_some(), FLAG_LOG)
            | flag(append_time.is_some(), FLAG_APPEND_TIME)
            | flag(opened.is_some(), FLAG_OPENED)
            | flag(is_served, FLAG_SERVED);
        let (start, end) = opened.unwrap_or_default();
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(HEAD_VERSION.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(self.at.store.0.to_le_bytes());
        bytes.extend(self.at.partition.0.to_le_bytes());
        bytes.extend(self.partitions.0.to_le_bytes());
        bytes.extend(self.log_id.unwrap_or_default().0.to_le_bytes());
        bytes.extend(self.position.to_bytes());
        bytes.extend(self.offset_applied.0.to_le_bytes());
        bytes.extend(self.partition_time.as_micros().to_le_bytes());
        bytes.extend(self.schema_version.0.to_le_bytes());
        bytes.extend(self.drop_all_count.to_le_bytes());
        bytes.extend(append_time.map_or(0, Timestamp::as_micros).to_le_bytes());
        bytes.extend(start.0.to_le_bytes());
        bytes.extend(end.0.to_le_bytes());
        bytes.extend(copy.to_le_bytes());
        bytes.extend(self.next_outcome.to_le_bytes());
        bytes
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// Returns `UpgradeNeeded` for a version that this build does not know, `Corrupt` for bytes
    /// that are not a head.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = ByteReader::new(bytes, damage_error);
        let version = reader.u16()?;
        if version != HEAD_VERSION {
            let message = format!(
                "the shard's head has version {version}, and this build knows {HEAD_VERSION}; \
                 upgrade the service"
            );
            return Err(Error::upgrade_needed(message));
        }
        let flags = reader.u16()?;
        if flags & !FLAGS_KNOWN != 0 {
            return Err(damage_error());
        }
        let is_set = |flag: u16| flags & flag != 0;
        let at =
            PartitionRef { store: StoreId(reader.u64()?), partition: PartitionId(reader.u32()?) };
        let (partitions, log_id) = (PartitionCount(reader.u32()?), LogId(reader.u64()?));
        let position = Position::from_bytes(&reader.take()?);
        let (offset_applied, partition_time) = (Offset(reader.u64()?), reader.time()?);
        let (schema_version, drop_all_count) = (SchemaVersion(reader.u32()?), reader.u32()?);
        let append_time = reader.time()?;
        let (start, end) = (Offset(reader.u64()?), Offset(reader.u64()?));
        let (copy, next_outcome) = (reader.u32()?, reader.u64()?);
        let follow_state = FollowState {
            append_time: is_set(FLAG_APPEND_TIME).then_some(append_time),
            opened: is_set(FLAG_OPENED).then_some((start, end)),
            copy,
            is_served: is_set(FLAG_SERVED),
        };
        let log_id = is_set(FLAG_LOG).then_some(log_id);
        let head = Self {
            at,
            partitions,
            log_id,
            position,
            offset_applied,
            partition_time,
            schema_version,
            drop_all_count,
            follow_state,
            next_outcome,
        };
        // A canonical head has 0 for unknown values and no bytes after its last field.
        if head.encode() == bytes { Ok(head) } else { Err(damage_error()) }
    }

    /// Returns the state of this head, without the parts that have rows of their own.
    pub fn into_restored(self) -> RestoredState {
        let mut state = PartitionState::new(self.at, self.partitions);
        state.log_id = self.log_id;
        state.position = self.position;
        state.offset_applied = self.offset_applied;
        state.partition_time = self.partition_time;
        state.schema_version = self.schema_version;
        state.drop_all_count = self.drop_all_count;
        let (follow_state, next_outcome) = (self.follow_state, self.next_outcome);
        let (outcomes, skipped) = (OutcomeTable::default(), BTreeMap::new());
        RestoredState { state, follow_state, outcomes, next_outcome, skipped }
    }
}

impl RestoredState {
    /// Takes over a row of the state other than the head.
    ///
    /// # Errors
    /// Returns `Corrupt` for a row that does not belong to the state.
    pub fn take_row(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        let [STATE, kind, key @ ..] = key else { return Err(damage_error()) };
        match kind {
            b'h' if key.is_empty() => {}
            &CLIENT => {
                let client = ClientId(u128::from_le_bytes(sized(key)?));
                self.state.dedup.restore(client, ClientWindow::from_bytes(&sized(row)?));
            }
            &SOURCE => {
                let source = PartitionId(u32::from_le_bytes(sized(key)?));
                self.state.sources.insert(source, Position::from_bytes(&sized(row)?));
            }
            // The keys sort outcomes in the order in which they happened.
            &OUTCOME => self.outcomes.keep(outcome_of(&sized(row)?)?),
            &SKIPPED => {
                let offset = Offset(u64::from_le_bytes(sized(key)?).swap_bytes());
                self.skipped.insert(offset, skipped_of(row)?);
            }
            _ => return Err(damage_error()),
        }
        Ok(())
    }
}

/// Writes the parts of the state that an entry changed, then the head; `None` deletes a row. The
/// entry's outcomes get numbers from `next_outcome` on. Returns the number of the next outcome.
pub fn write_changed(
    applied: &FoldEffects,
    state: &PartitionState,
    follow_state: FollowState,
    mut next_outcome: u64,
    mut write: impl FnMut(&[u8], Option<&[u8]>),
) -> u64 {
    for client in applied.clients.iter().collect::<BTreeSet<_>>() {
        let window = state.dedup.window(*client).map(ClientWindow::to_bytes);
        write(&client_key(*client), window.as_ref().map(|row| &row[..]));
    }
    for source in &applied.sources {
        let position = state.sources.get(source).copied().unwrap_or_default();
        write(&source_key(*source), Some(&position.to_bytes()));
    }
    for outcome in &applied.outcomes {
        write(&outcome_key(next_outcome), Some(&outcome_row(outcome)));
        if let Some(oldest) = next_outcome.checked_sub(OUTCOMES_KEPT as u64) {
            write(&outcome_key(oldest), None);
        }
        next_outcome += 1;
    }
    if let Some(reason) = &applied.skipped {
        let offset = Offset(state.offset_applied.0.saturating_sub(1));
        write(&skipped_key(offset), Some(&skipped_row(state.log_id, reason)));
    }
    write(HEAD, Some(&Head::of(state, follow_state, next_outcome).encode()));
    next_outcome
}

fn client_key(client: ClientId) -> Vec<u8> {
    [&[STATE, CLIENT], &client.0.to_le_bytes()[..]].concat()
}

fn source_key(source: PartitionId) -> Vec<u8> {
    [&[STATE, SOURCE], &source.0.to_le_bytes()[..]].concat()
}

/// Returns a key that sorts as the number does.
fn outcome_key(number: u64) -> Vec<u8> {
    [&[STATE, OUTCOME], &number.swap_bytes().to_le_bytes()[..]].concat()
}

/// Returns the key of a skipped record; keys sort as the offsets do.
pub fn skipped_key(offset: Offset) -> Vec<u8> {
    [&[STATE, SKIPPED], &offset.0.swap_bytes().to_le_bytes()[..]].concat()
}

fn skipped_row(log_id: Option<LogId>, reason: &Error) -> Vec<u8> {
    let mut row = Vec::with_capacity(13 + reason.message().len());
    row.push(u8::from(log_id.is_some()));
    row.extend(log_id.unwrap_or_default().0.to_le_bytes());
    row.extend(reason.code().number().to_le_bytes());
    row.extend(reason.message().as_bytes());
    row
}

fn skipped_of(row: &[u8]) -> Result<SkippedRecord> {
    let mut reader = ByteReader::new(row, damage_error);
    let ([has_log], log_id, code) = (reader.take()?, reader.u64()?, reader.u32()?);
    if has_log > 1 || has_log == 0 && log_id != 0 {
        return Err(damage_error());
    }
    let code = ErrorCode::from_number(code.cast_signed()).ok_or_else(damage_error)?;
    let message = std::str::from_utf8(reader.rest()).map_err(|_| damage_error())?;
    let log_id = (has_log == 1).then_some(LogId(log_id));
    Ok(SkippedRecord { log_id, reason: Error::new(code, message) })
}

fn outcome_row(outcome: &Outcome) -> Vec<u8> {
    let (kind, version) = match outcome.condition {
        ConditionOutcome::Applied => (APPLIED, 0),
        ConditionOutcome::ConditionFailed(None) => (CONDITION_FAILED, 0),
        ConditionOutcome::ConditionFailed(Some(version)) => (CONDITION_FAILED_VERSIONED, version.0),
        ConditionOutcome::TooLarge => (TOO_LARGE, 0),
    };
    let mut row = Vec::with_capacity(OUTCOME_BYTES);
    row.extend(outcome.client.0.to_le_bytes());
    row.extend(outcome.sequence.0.to_le_bytes());
    row.extend(outcome.position.to_bytes());
    row.push(kind);
    row.extend(version.to_le_bytes());
    row
}

fn outcome_of(row: &[u8; OUTCOME_BYTES]) -> Result<Outcome> {
    let mut reader = ByteReader::new(row, damage_error);
    let client = ClientId(u128::from_le_bytes(reader.take()?));
    let (sequence, position) = (Sequence(reader.u64()?), Position::from_bytes(&reader.take()?));
    let ([kind], version) = (reader.take()?, DocumentVersion(reader.u64()?));
    let condition = match kind {
        APPLIED => ConditionOutcome::Applied,
        CONDITION_FAILED => ConditionOutcome::ConditionFailed(None),
        CONDITION_FAILED_VERSIONED => ConditionOutcome::ConditionFailed(Some(version)),
        TOO_LARGE => ConditionOutcome::TooLarge,
        _ => return Err(damage_error()),
    };
    if kind != CONDITION_FAILED_VERSIONED && version.0 != 0 {
        return Err(damage_error());
    }
    Ok(Outcome { client, sequence, position, condition })
}

fn damage_error() -> Error {
    Error::corrupt("the shard's state is damaged; remove the shard, and its log rebuilds the shard")
}

fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| damage_error())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::Epoch;

    fn head() -> Head {
        let at = PartitionRef { store: StoreId(0x0807_0605_0403_0201), partition: PartitionId(3) };
        Head {
            at,
            partitions: PartitionCount(8),
            log_id: Some(LogId(9)),
            position: Position { epoch: Epoch(1), offset: Offset(2), index_in_entry: 3 },
            offset_applied: Offset(7),
            partition_time: Timestamp::from_micros(-5),
            schema_version: SchemaVersion(4),
            drop_all_count: 1,
            follow_state: FollowState {
                append_time: Some(Timestamp::from_micros(11)),
                opened: Some((Offset(1), Offset(6))),
                copy: 2,
                is_served: true,
            },
            next_outcome: 70_000,
        }
    }

    #[test]
    fn heads_round_trip() {
        let bare = Head { log_id: None, follow_state: FollowState::default(), ..head() };
        for head in [head(), bare] {
            assert_eq!(Head::decode(&head.encode()).unwrap(), head);
        }
    }

    #[test]
    fn head_of_a_newer_format_needs_an_upgrade_and_a_damaged_head_is_refused() {
        let bytes = head().encode();
        let mut newer = bytes.clone();
        newer[0] += 1;
        assert_eq!(Head::decode(&newer).unwrap_err().code(), ErrorCode::UpgradeNeeded);
        let mut flagged_bytes = bytes.clone();
        flagged_bytes[3] = 0x80;
        for bytes in
            [&bytes[1..], &bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &flagged_bytes]
        {
            assert!(Head::decode(bytes).is_err());
        }
    }

    proptest! {
        #[test]
        fn outcome_rows_round_trip(client: u128, sequence: u64, kind in 0..4, n: u64) {
            let condition = match kind {
                0 => ConditionOutcome::Applied,
                1 => ConditionOutcome::ConditionFailed(None),
                2 => ConditionOutcome::ConditionFailed(Some(DocumentVersion(n))),
                _ => ConditionOutcome::TooLarge,
            };
            let position = Position { epoch: Epoch(0), offset: Offset(n), index_in_entry: 9 };
            let (client, sequence) = (ClientId(client), Sequence(sequence));
            let outcome = Outcome { client, sequence, position, condition };
            let row = outcome_row(&outcome).try_into().unwrap();
            prop_assert_eq!(outcome_of(&row).unwrap(), outcome);
        }

        #[test]
        fn skipped_record_rows_round_trip(offset: u64, log_id: Option<u64>, text: String) {
            let record = SkippedRecord { log_id: log_id.map(LogId), reason: Error::corrupt(text) };
            let mut restored = head().into_restored();
            let row = skipped_row(record.log_id, &record.reason);
            restored.take_row(&skipped_key(Offset(offset)), &row).unwrap();
            prop_assert_eq!(restored.skipped, BTreeMap::from([(Offset(offset), record)]));
        }

        #[test]
        fn arbitrary_rows_are_state_or_refused(key: Vec<u8>, row: Vec<u8>, kind in 0usize..6) {
            let kind = [CLIENT, SOURCE, OUTCOME, SKIPPED, b'h', b'?'][kind];
            let mut restored = head().into_restored();
            let _ = restored.take_row(&[&[STATE, kind][..], &key].concat(), &row);
            let _ = restored.take_row(&key, &row);
            let _ = Head::decode(&row);
        }
    }
}
