//! Comparison of a view's stored values with a replay of its log, bit by bit; to be run every
//! night.

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionId};
use forebay_core::row::encode_value;
use forebay_core::schema::Definition;
use forebay_core::value::Value;
use forebay_shard::OwnedView;
use forebay_tasks::block_in_place;

use super::replay::Replay;
use crate::fold::ViewShards;
use crate::parts::FeatureParts;

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ViewComparison {
    pub(super) groups: u64,
    pub(super) values: u64,
    /// The groups that differ, with the differing output.
    pub(super) differing: Vec<String>,
}

/// The compared groups of a partition, with their stored values.
struct StoredValues {
    offset: Offset,
    partition_time: Timestamp,
    groups: Vec<(Vec<u8>, Vec<Option<Value>>)>,
}

/// Compares some groups of a partition that is folded here, starting at a random group.
///
/// # Errors
/// `Unavailable` if the partition is not folded here; else as the log.
pub(super) async fn compare(
    parts: &FeatureParts,
    definition: &Definition,
    shards: &ViewShards,
    (partition, groups_max): (PartitionId, usize),
) -> Result<ViewComparison> {
    let random_start = parts.context.entropy.next_u64()?.to_le_bytes();
    let stored = block_in_place(|| stored_values(shards, partition, &random_start, groups_max))?;
    let plan = shards.plan();
    let groups = stored.groups.iter().map(|(group, _)| group.clone());
    let mut replay = Replay::new(parts, (definition, plan), partition, groups);
    replay.fold_to(stored.offset).await?;
    let names: Vec<_> = plan.view.outputs().into_iter().map(|output| output.name).collect();
    let mut comparison = ViewComparison::default();
    for (group, values) in &stored.groups {
        let replayed = block_in_place(|| replay.values(group, stored.partition_time))?;
        comparison.groups += 1;
        comparison.values += values.len() as u64;
        for ((name, stored_value), replayed) in names.iter().zip(values).zip(&replayed) {
            if bits(stored_value.as_ref()) != bits(replayed.as_ref()) {
                let group = plan.group_values(group)?;
                comparison
                    .differing
                    .push(format!("{group:?}: {name}: {stored_value:?}, not {replayed:?}"));
            }
        }
    }
    Ok(comparison)
}

fn stored_values(
    shards: &ViewShards,
    partition: PartitionId,
    random_start: &[u8],
    groups_max: usize,
) -> Result<StoredValues> {
    let view = OwnedView::open(shards.replicas().shard(partition)?)?;
    let view = view.view();
    let partition_time = view.partition_time();
    let mut groups = Vec::new();
    for group in shards.some_groups(view, random_start, groups_max)? {
        let values = shards.plan().values(&shards.tiles(view, &group)?, partition_time)?;
        groups.push((group, values));
    }
    Ok(StoredValues { offset: view.offset_applied(), partition_time, groups })
}

fn bits(value: Option<&Value>) -> Option<Vec<u8>> {
    value.map(|value| {
        let mut bytes = Vec::new();
        encode_value(value, &mut bytes);
        bytes
    })
}
