//! Admission: refuses every invalid request before anything is appended.

use std::collections::BTreeMap;

use forebay_core::change::{Change, ClientBatch, FieldOp};
use forebay_core::id::{ClientId, PartitionId, Sequence};
use forebay_core::key::Key;
use forebay_core::limits::{DEDUP_WINDOW, ENTRY_BYTES_MAX, REQUEST_CHANGES_MAX, ROW_BYTES_MAX};
use forebay_core::partition::partition_of;
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, Value};
use forebay_core::versions::StoreLogs;
use forebay_core::{Error, Result};

/// Approximate bytes of a change in addition to its key and values: ids, tags, lengths.
const CHANGE_OVERHEAD_BYTES: usize = 64;
const FIELD_OVERHEAD_BYTES: usize = 16;

/// The routing of a client's changes as the client knows the store.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientRouting<'r> {
    /// The partition of each change; empty if the client names none.
    pub partitions: &'r [u32],
    /// The number of repartitions of the store that the client has seen.
    pub repartition_count: u32,
}

impl ClientRouting<'_> {
    /// # Errors
    /// `Conflict` if the store was repartitioned since: the changes are numbered for other
    /// partitions.
    pub(crate) fn check_repartition_count(&self, logs: StoreLogs) -> Result<()> {
        if self.repartition_count == u32::from(logs.repartition_count) {
            return Ok(());
        }
        let message = "the write has another partition count than the store; describe the store \
            again, and resend the changes that are not in the log";
        Err(Error::conflict(message))
    }
}

/// The part of a request that goes to one partition.
#[derive(Debug)]
pub(crate) struct Part {
    /// The changes, in the client's order.
    pub(crate) batch: ClientBatch,
    /// The changes as the request numbers them, in the batch's order.
    pub(crate) changes: Vec<AdmittedChange>,
    /// Approximate size of the changes in an entry.
    pub(crate) bytes: usize,
}

/// A change of a request after admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedChange {
    /// Index of the change in the request.
    pub(crate) index: usize,
    pub(crate) sequence: Sequence,
    /// Whether a replica decides the outcome.
    pub(crate) is_conditional: bool,
}

/// Checks a batch against `made_with`, converts it to the definition `newest`, and splits it by
/// partition.
///
/// # Errors
/// `InvalidArgument` or `LimitExceeded`, naming the change by its index; nothing was appended.
pub(crate) fn admit(
    batch: ClientBatch,
    client_partitions: &[u32],
    made_with: &Definition,
    newest: &Definition,
) -> Result<BTreeMap<PartitionId, Part>> {
    let count = batch.changes.len();
    if count == 0 {
        return Err(Error::invalid_argument("the write has no changes; send at least one"));
    }
    if count > REQUEST_CHANGES_MAX {
        let advice = "the batch has too many changes; send the batch in parts";
        return Err(Error::limit_exceeded(advice, REQUEST_CHANGES_MAX as u64, count as u64));
    }
    if !client_partitions.is_empty() && client_partitions.len() != count {
        return Err(Error::invalid_argument(
            "some changes name a partition and others do not; name a partition for every change, \
             or for none",
        ));
    }
    let client = batch.client;
    let mut parts = BTreeMap::<PartitionId, Part>::new();
    for (index, change) in batch.changes.into_iter().enumerate() {
        let at_change = |error: Error| error.while_doing(&format!("check change {index}"));
        change.check(made_with).map_err(at_change)?;
        let partition = partition(&change.key, newest).map_err(at_change)?;
        if client_partitions.get(index).is_some_and(|named| *named != partition.0) {
            let message = "the key belongs to another partition; hash the key as \
                proto/spec/partitioning.md says";
            return Err(at_change(Error::invalid_argument(message).with_partition(partition)));
        }
        let mut change = widen(change, newest);
        change.fill_in(newest);
        change.check_rules(newest, made_with).map_err(at_change)?;
        let bytes = approximate_bytes(&change);
        if bytes > ROW_BYTES_MAX.min(ENTRY_BYTES_MAX - CHANGE_OVERHEAD_BYTES) {
            let advice = "the document is too large; split the document";
            let error = Error::limit_exceeded(advice, ENTRY_BYTES_MAX as u64, bytes as u64);
            return Err(at_change(error));
        }
        let part = parts.entry(partition).or_insert_with(|| Part::new(client));
        let (sequence, is_conditional) = (change.sequence, change.condition.is_some());
        part.changes.push(AdmittedChange { index, sequence, is_conditional });
        part.batch.changes.push(change);
        part.bytes += bytes;
    }
    for (partition, part) in &parts {
        part.check(*partition)?;
    }
    Ok(parts)
}

impl Part {
    fn new(client: ClientId) -> Self {
        Self { batch: ClientBatch { client, changes: Vec::new() }, changes: Vec::new(), bytes: 0 }
    }

    /// Checks the limits of one entry. A part becomes one atomic entry, so the part must fit into
    /// an entry and its sequences into one de-duplication window.
    fn check(&self, partition: PartitionId) -> Result<()> {
        if self.bytes > ENTRY_BYTES_MAX {
            let advice = "the batch is too large; send the batch in parts";
            let error = Error::limit_exceeded(advice, ENTRY_BYTES_MAX as u64, self.bytes as u64);
            return Err(error.with_partition(partition));
        }
        let sequences = || self.changes.iter().map(|change| change.sequence.0);
        let (lowest, highest) = (sequences().min().unwrap_or(0), sequences().max().unwrap_or(0));
        if lowest == 0 {
            let message = "the sequence is 0; count sequences from 1 in each partition";
            return Err(Error::invalid_argument(message).with_partition(partition));
        }
        if highest - lowest >= DEDUP_WINDOW {
            let advice =
                "the sequences of a partition span more than its window; send the batch in parts";
            let error = Error::limit_exceeded(advice, DEDUP_WINDOW, highest - lowest + 1);
            return Err(error.with_partition(partition));
        }
        let mut numbers: Vec<_> = sequences().collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            let message = "two changes of one partition share a sequence; give each change its own";
            return Err(Error::invalid_argument(message).with_partition(partition));
        }
        Ok(())
    }
}

fn partition(key: &Key, definition: &Definition) -> Result<PartitionId> {
    let (partition_key, primary) = Key::split(key.as_bytes(), definition.partition_key.is_some())?;
    Ok(partition_of(partition_key.unwrap_or(primary), definition.write_logs().partitions))
}

/// Widens values to the field types of the newest definition, because the entry names that version.
fn widen(mut change: Change, newest: &Definition) -> Change {
    change.fields.retain(|field_change| newest.field_by_id(field_change.field).is_some());
    for field_change in &mut change.fields {
        let Some(field) = newest.field_by_id(field_change.field) else { continue };
        match &mut field_change.op {
            FieldOp::Set(Some(value))
            | FieldOp::Increment(value)
            | FieldOp::Min(value)
            | FieldOp::Max(value) => widen_value(value, field.field_type),
            _ => {}
        }
    }
    change
}

fn widen_value(value: &mut Value, to: FieldType) {
    if value.field_type() != Some(to) {
        *value = value.clone().widened_to(to);
    }
}

fn approximate_bytes(change: &Change) -> usize {
    let items = |items: &[Value]| items.iter().map(|item| 4 + item.encoded_bytes()).sum::<u64>();
    let fields: u64 = change
        .fields
        .iter()
        .map(|field| {
            FIELD_OVERHEAD_BYTES as u64
                + match &field.op {
                    FieldOp::Set(None) | FieldOp::Remove => 0,
                    FieldOp::Set(Some(value))
                    | FieldOp::Increment(value)
                    | FieldOp::Min(value)
                    | FieldOp::Max(value) => value.encoded_bytes(),
                    FieldOp::ListAppend { items: list, .. }
                    | FieldOp::SetAdd { items: list, .. }
                    | FieldOp::SetRemove { items: list } => items(list),
                }
        })
        .sum();
    CHANGE_OVERHEAD_BYTES + change.key.as_bytes().len() + fields as usize
}
