//! Fold of a view's events into shards of tiles. A shard advances by whole entries of the view's
//! own logs, and writes tiles and position in one step.

mod keys;
mod materialization;
mod run;
mod view_rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::PartitionId;
use forebay_core::key_order::{Direction, KeyOrder};
use forebay_core::schema_set::SchemaSet;
use forebay_shard::{Shard, ShardDirectory, View};
use forebay_shard_replica::{EntryRun, Materializer, ShardFolder, ShardReplicas, WrittenShard};
use forebay_sketch::GroupTiles;
use tokio::sync::Notify;

use self::keys::{
    changed_behind, changed_group, group_and_more, tile_of, tiles_from, tiles_of, version_key,
};
use self::materialization::MaterializationRows;
use self::run::RunFold;
use self::view_rows::ViewRows;
use crate::dirty_groups::{DirtyGroups, GroupChange};
use crate::plan::Plan;
use crate::view_stats::Counters;

/// Row format of a view's shards: tiles, and materialization rows.
pub(crate) struct ViewFold {
    plan: Plan,
    rows: ViewRows,
    counters: Arc<Counters>,
}

/// The shards of one view in this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ViewShards(ShardReplicas<ViewFold>);

impl ViewShards {
    /// Creates the set of a view's shards in a folder, with these definitions; no shard is open
    /// yet.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition, or for one that is not a view.
    pub(crate) fn new(
        versions: Vec<Arc<SchemaAt>>,
        directory: ShardDirectory,
        counters: Arc<Counters>,
        reopen: Arc<Notify>,
    ) -> Result<Self> {
        let schemas = SchemaSet::new(versions)?;
        let definition = &schemas.newest().definition;
        let plan = Plan::of(definition)?;
        let fold = ViewFold { plan, rows: ViewRows::new()?, counters };
        let (order, partitions) = (KeyOrder::of(definition), definition.write_logs().partitions);
        let folder = ShardFolder { directory, order, partitions };
        Ok(Self(ShardReplicas::new(fold, schemas, folder, reopen)))
    }

    /// Returns the replicas that follow the logs.
    pub(crate) fn replicas(&self) -> &ShardReplicas<ViewFold> {
        &self.0
    }

    /// Returns the plan of the fold.
    pub(crate) fn plan(&self) -> &Plan {
        &self.0.materializer().plan
    }

    /// Returns the tiles of a group at one position, and the partition's time there.
    ///
    /// # Errors
    /// `Unavailable` if the partition is not open here, or the disk refuses; `Corrupt`.
    pub(crate) fn group(
        &self,
        partition: PartitionId,
        group: &[u8],
    ) -> Result<(GroupTiles, Timestamp)> {
        let shard = self.0.shard(partition)?;
        let view = shard.view()?;
        Ok((self.tiles(&view, group)?, view.partition_time()))
    }

    /// Returns the tiles of a group in a view of its shard.
    ///
    /// # Errors
    /// As [`ViewShards::group`].
    pub(crate) fn tiles(&self, view: &View<'_>, group: &[u8]) -> Result<GroupTiles> {
        let ViewFold { plan, rows, .. } = self.0.materializer();
        let mut tiles = GroupTiles::default();
        let mut found = view.scan(&tiles_of(group), Direction::Forward);
        while let Some((key, row)) = found.next()? {
            let tile = tile_of(key.as_bytes(), group)?;
            tiles.put(tile, rows.tile(&plan.fold, row)?);
        }
        Ok(tiles)
    }

    /// Returns at most `groups_max` groups that have tiles, starting at these bytes and wrapping
    /// around.
    ///
    /// # Errors
    /// As [`ViewShards::group`].
    pub(crate) fn some_groups(
        &self,
        view: &View<'_>,
        from: &[u8],
        groups_max: usize,
    ) -> Result<BTreeSet<Vec<u8>>> {
        let mut groups = BTreeSet::new();
        for begin in [from, &[]] {
            let mut range = tiles_from(begin);
            while groups.len() < groups_max {
                let mut found = view.scan(&range, Direction::Forward);
                let Some((key, _)) = found.next()? else { break };
                let named = group_and_more(key.as_bytes())?;
                let (_, rest) = self.plan().group_at_front(named)?;
                let group = &named[..named.len() - rest.len()];
                range.from = tiles_of(group).to;
                if !groups.insert(group.to_vec()) {
                    break;
                }
            }
        }
        Ok(groups)
    }

    /// Reads at most `at_most` groups that wait for materialization from the shard's rows, after
    /// the group `after`.
    ///
    /// # Errors
    /// As [`ViewShards::group`].
    pub(crate) fn changed_groups(
        &self,
        partition: PartitionId,
        after: &[u8],
        at_most: usize,
    ) -> Result<Vec<(Vec<u8>, GroupChange)>> {
        let shard = self.0.shard(partition)?;
        let view = shard.view()?;
        let mut rows = view.scan(&changed_behind(after), Direction::Forward);
        let (mut found, codec) = (Vec::new(), &self.0.materializer().rows);
        while found.len() < at_most {
            let Some((key, row)) = rows.next()? else { break };
            found.push((changed_group(key.as_bytes())?.to_vec(), codec.change(row)?));
        }
        Ok(found)
    }
}

impl Materializer for ViewFold {
    /// The groups that wait for materialization.
    type Shared = DirtyGroups;

    fn is_compatible(&self, shard: &Shard, schemas: &SchemaSet) -> Result<bool> {
        let Some(row) = shard.row(version_key().as_bytes())? else { return Ok(false) };
        let version = self.rows.version(&row)?;
        let of_version = |schema: &&Arc<SchemaAt>| schema.definition.version == version;
        let folded = schemas.all().find(of_version);
        Ok(folded.is_some_and(|folded| self.plan.folds_as(&folded.definition)))
    }

    fn write(&self, shard: &mut WrittenShard<Self>, run: &EntryRun<'_>) -> Result<()> {
        let mut fold = RunFold::new(&self.plan, &self.rows, shard.shard());
        run.entries.iter().try_for_each(|entry| fold.fold(entry))?;
        let (mut writes, mut update) = (Vec::new(), None);
        if self.plan.view.materialization.is_some() {
            let (shard, dirty) = (shard.shard(), shard.shared());
            let mut rows = MaterializationRows::new(&self.rows, shard, dirty, run.state);
            rows.pass()?;
            fold.changed_groups().for_each(|(group, changed)| rows.change(group, changed));
            update = Some(rows.write(&mut writes)?);
        }
        let counts = fold.write(&mut writes)?;
        if shard.is_empty() {
            writes.push((version_key(), Some(self.rows.of_version(self.plan.version)?)));
        }
        shard.write_run(run, &[], writes)?;
        self.counters.add(counts);
        if let Some(update) = update {
            update.publish(shard.shared());
        }
        Ok(())
    }
}
