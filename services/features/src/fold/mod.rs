//! Fold of a view's events into shards of tiles. A shard advances by whole entries of the view's
//! own logs, and writes tiles and position in one step.

mod emission;
mod keys;
mod run;
mod tiles;

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::PartitionId;
use forebay_core::key_order::{Direction, KeyOrder};
use forebay_index::SchemaSet;
use forebay_shard::{Shard, ShardDirectory, View};
use forebay_sketch::GroupTiles;
use tokio::sync::Notify;

use self::emission::EmissionRows;
use self::keys::{group_and_more, tile_of, tiles_from, tiles_of, version_key};
use self::run::RunFold;
use self::tiles::TileRows;
use crate::counts::Counters;
use crate::emit::Pending;
use crate::plan::Plan;
use crate::shards::{Keeps, Run, Shards, Writing};

/// Row format of a view's shards: tiles, and emission rows.
pub(crate) struct ViewFold {
    plan: Plan,
    rows: TileRows,
    counters: Arc<Counters>,
}

/// The shards of one view in this process.
pub(crate) type ViewShards = Shards<ViewFold>;

impl ViewShards {
    /// Creates the set of a view's shards in a folder, with these definitions; no shard is open
    /// yet.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition, or for one that is not a view.
    pub(crate) fn of_view(
        versions: Vec<Arc<SchemaAt>>,
        directory: ShardDirectory,
        counters: Arc<Counters>,
        reopen: Arc<Notify>,
    ) -> Result<Self> {
        let fold = |newest: &SchemaAt| {
            let plan = Plan::of(&newest.definition)?;
            Ok(ViewFold { plan, rows: TileRows::new()?, counters })
        };
        let order = |newest: &SchemaAt| KeyOrder::of(&newest.definition);
        Self::new(fold, versions, (directory, order), reopen)
    }

    /// Returns the plan of the fold.
    pub(crate) fn plan(&self) -> &Plan {
        &self.keeps().plan
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
        let shard = self.shard(partition)?;
        let view = shard.view()?;
        Ok((self.tiles(&view, group)?, view.partition_time()))
    }

    /// Returns the tiles of a group in a view of its shard.
    ///
    /// # Errors
    /// As [`ViewShards::group`].
    pub(crate) fn tiles(&self, view: &View<'_>, group: &[u8]) -> Result<GroupTiles> {
        let ViewFold { plan, rows, .. } = self.keeps();
        let mut tiles = GroupTiles::default();
        let mut found = view.scan(&tiles_of(group), Direction::Forward);
        while let Some((key, row)) = found.next()? {
            let tile = tile_of(key.as_bytes(), group)?;
            tiles.put(tile, rows.tile(&plan.fold, row)?);
        }
        Ok(tiles)
    }
}

impl ViewShards {
    /// Returns at most `most` groups that have tiles, starting at these bytes and wrapping around.
    ///
    /// # Errors
    /// As [`ViewShards::group`].
    pub(crate) fn some_groups(
        &self,
        view: &View<'_>,
        from: &[u8],
        most: usize,
    ) -> Result<BTreeSet<Vec<u8>>> {
        let mut groups = BTreeSet::new();
        for begin in [from, &[]] {
            let mut range = tiles_from(begin);
            while groups.len() < most {
                let mut found = view.scan(&range, Direction::Forward);
                let Some((key, _)) = found.next()? else { break };
                let named = group_and_more(key.as_bytes())?;
                let (_, behind) = self.plan().group_at_front(named)?;
                let group = &named[..named.len() - behind.len()];
                range.from = tiles_of(group).to;
                if !groups.insert(group.to_vec()) {
                    break;
                }
            }
        }
        Ok(groups)
    }
}

impl Keeps for ViewFold {
    /// The groups that wait for emission.
    type Told = Pending;

    fn is_kept_alike(&self, shard: &Shard, schemas: &SchemaSet) -> Result<bool> {
        let Some(row) = shard.row(version_key().as_bytes())? else { return Ok(false) };
        let version = self.rows.version(&row)?;
        let of_version = |schema: &&Arc<SchemaAt>| schema.definition.version == version;
        let folded = schemas.all().find(of_version);
        Ok(folded.is_some_and(|folded| self.plan.folds_as(&folded.definition)))
    }

    fn write(&self, writing: &mut Writing<Self>, run: &Run<'_>) -> Result<()> {
        let mut fold = RunFold::new(self, writing.writer.shard());
        run.entries.iter().try_for_each(|entry| fold.fold(entry))?;
        let (mut writes, mut told) = (Vec::new(), None);
        if self.plan.view.emission.is_some() {
            let (shard, pending) = (writing.writer.shard(), &writing.told);
            let mut rows = EmissionRows::new(self, shard, pending, run.state);
            rows.pass()?;
            fold.changed().for_each(|(group, changed)| rows.change(group, changed));
            told = Some(rows.write(&mut writes)?);
        }
        let folds = fold.write(&mut writes)?;
        if writing.is_empty {
            writes.push((version_key(), Some(self.rows.of_version(self.plan.version)?)));
        }
        writing.put(run, &[], writes)?;
        self.counters.add(folds);
        if let Some(told) = told {
            told.tell(&writing.told);
        }
        Ok(())
    }
}
