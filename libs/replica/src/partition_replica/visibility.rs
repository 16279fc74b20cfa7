//! The way of a replica into service, and its state as readers see it.

use forebay_core::id::Offset;
use forebay_core::outcome::OutcomeTable;
use forebay_core::replica_state::Phase;
use forebay_core::{Error, Result};

use super::PartitionReplica;
use crate::progress::{CatchUp, RebuildProgress, ReplicaProgress, ServedState};

impl PartitionReplica {
    /// Returns whether the replica may replace the one whose progress is `current`.
    pub(crate) fn may_be_served(
        &self,
        current: &ReplicaProgress,
        allow_incomplete_reads: bool,
    ) -> bool {
        if self.is_served() || self.is_broken {
            return false;
        }
        match current.phase {
            // No read has used the old replica.
            Phase::Bootstrapping if !allow_incomplete_reads => true,
            Phase::Poisoned => self.has_caught_up(),
            _ if self.visible.log_id.is_none() => false,
            _ if current.served.log_id != self.visible.log_id => self.has_caught_up(),
            _ => self.visible.position >= current.served.position,
        }
    }

    /// Keeps the replica out of service until it may replace the one that readers use.
    pub fn wait_beside(&mut self, reason: Error) {
        self.reason = Some(reason);
    }

    /// Makes the replica visible to readers, in place of the older one, which was in this phase.
    ///
    /// # Errors
    /// Returns the errors of `ReplicaWriter::publish_rebuild`.
    pub(crate) fn publish(&mut self, phase: Phase) -> Result<()> {
        self.writer.publish_rebuild()?;
        if phase == Phase::Serving {
            // A replica is not in this phase yet if readers started from a checkpoint.
            self.writer.set_phase(Phase::Serving);
        }
        Ok(())
    }

    /// Notes that the replica is in service; returns its outcomes.
    pub fn serve(&mut self) -> OutcomeTable {
        self.reason = None;
        std::mem::take(&mut self.outcomes)
    }

    /// Makes reads answer `Internal`.
    pub(crate) fn poison(&mut self) {
        self.writer.set_phase(Phase::Poisoned);
    }

    /// Reports the replica in the progress, as the one in service or as the one under
    /// construction.
    pub(crate) fn report(&mut self, progress: &mut ReplicaProgress) {
        let opened =
            self.opened.map_or((Offset(0), Offset(0)), |bounds| (bounds.start, bounds.end));
        let offset_applied = self.visible.offset_applied;
        let catch_up = CatchUp { start: opened.0, offset_applied, target: opened.1 };
        if let Some(reason) = &self.reason {
            let (generation, log_id, reason) = (self.number, self.visible.log_id, reason.clone());
            progress.rebuild = Some(RebuildProgress { generation, log_id, catch_up, reason });
            return;
        }
        let replaces = progress.generation != self.number;
        progress.rebuild = None;
        progress.generation = self.number;
        progress.served = self.visible;
        if progress.phase != Phase::Serving {
            progress.catch_up = catch_up;
            progress.phase = Phase::Bootstrapping;
        }
        if self.has_caught_up() && (progress.phase != Phase::Serving || replaces) {
            self.writer.set_phase(Phase::Serving);
            progress.phase = Phase::Serving;
        }
    }

    /// Returns the state that readers see once they use this replica.
    pub(super) fn served(&self) -> ServedState {
        let log_id = self.state.log_id;
        ServedState {
            log_id,
            position: log_id.map(|_| self.state.position),
            offset_applied: self.state.offset_applied,
            append_time: self.append_time,
            schema_version: self.state.schema_version,
        }
    }
}
