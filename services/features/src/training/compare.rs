//! Comparison of a view's stored values with a replay of its log, bit by bit; to be run every
//! night.

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionId};
use forebay_core::row::encode_value;
use forebay_core::schema::Definition;
use forebay_core::value::Value;
use forebay_shard::OwnedView;
use forebay_snapshot::in_place;

use super::replay::Replay;
use crate::fold::ViewShards;
use crate::parts::FeatureParts;

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Compared {
    pub(super) groups: u64,
    pub(super) values: u64,
    /// The groups that differ, with the differing output.
    pub(super) differing: Vec<String>,
}

/// The compared groups of a partition, with their stored values.
struct Kept {
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
    (partition, most): (PartitionId, usize),
) -> Result<Compared> {
    let drawn = parts.entropy.next_u64()?.to_le_bytes();
    let kept = in_place(|| kept(shards, partition, &drawn, most))?;
    let plan = shards.plan();
    let groups = kept.groups.iter().map(|(group, _)| group.clone());
    let mut replay = Replay::new(parts, (definition, plan), partition, groups);
    replay.to(kept.offset).await?;
    let names: Vec<_> = plan.view.outputs().into_iter().map(|output| output.name).collect();
    let mut compared = Compared::default();
    for (group, values) in &kept.groups {
        let again = in_place(|| replay.values(group, kept.partition_time))?;
        compared.groups += 1;
        compared.values += values.len() as u64;
        for ((name, kept), again) in names.iter().zip(values).zip(&again) {
            if bits(kept.as_ref()) != bits(again.as_ref()) {
                let group = plan.group_values(group)?;
                compared.differing.push(format!("{group:?}: {name}: {kept:?}, not {again:?}"));
            }
        }
    }
    Ok(compared)
}

fn kept(shards: &ViewShards, at: PartitionId, drawn: &[u8], most: usize) -> Result<Kept> {
    let view = OwnedView::open(shards.shard(at)?)?;
    let view = view.view();
    let partition_time = view.partition_time();
    let mut groups = Vec::new();
    for group in shards.some_groups(view, drawn, most)? {
        let values = shards.plan().values(&shards.tiles(view, &group)?, partition_time)?;
        groups.push((group, values));
    }
    Ok(Kept { offset: view.offset_applied(), partition_time, groups })
}

fn bits(value: Option<&Value>) -> Option<Vec<u8>> {
    value.map(|value| {
        let mut bytes = Vec::new();
        encode_value(value, &mut bytes);
        bytes
    })
}
