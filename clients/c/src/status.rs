//! The status of a reader, packed as `fb_reader_metrics` of the header describes.

use std::time::Duration;

use forebay::Error;
use forebay::status::{Phase, ReaderMetrics, ReaderStatus, SnapshotDownload};

use crate::output::{NONE, Packer};

impl Packer {
    pub(crate) fn metrics(&mut self, metrics: &ReaderMetrics) {
        let counts = &metrics.counts;
        for count in [
            metrics.reads.hits,
            metrics.reads.misses,
            metrics.memory_bytes,
            metrics.memory.used,
            metrics.memory.limit.unwrap_or(u64::MAX),
            metrics.memory.spilled,
            metrics.memory.spill_limit,
            counts.records_applied,
            counts.log_bytes_read,
            counts.records_skipped,
            counts.duplicates_skipped,
            counts.oversized_skipped,
            counts.log_errors,
            counts.rebuilds,
            counts.bootstraps,
            counts.bootstraps_failed,
            counts.checkpoints.written,
            counts.checkpoints.failed,
            counts.checkpoints.restored,
            counts.checkpoints.damaged,
            counts.checkpoints.ignored,
            counts.checkpoints.blocks_repaired,
        ] {
            self.u64(count);
        }
        self.status(&metrics.status);
    }

    fn status(&mut self, status: &ReaderStatus) {
        self.text(status.store.as_bytes());
        self.u8(status.is_ready.into());
        self.u8(phase_code(status.phase));
        self.u8(status.bootstrap_percent);
        self.duration(status.bootstrap_remaining);
        self.duration(status.age);
        self.u32(status.schema_version.0);
        self.u32(status.partitions.len() as u32);
        for partition in &status.partitions {
            self.u32(partition.partition.0);
            self.u8(phase_code(partition.phase));
            self.u32(partition.generation);
            self.u64(partition.offset_applied.0);
            self.u64(partition.end_offset.0);
            self.u64(partition.lag_records);
            self.duration(partition.age);
            self.u32(partition.schema_version.0);
            self.u64(partition.documents);
            self.u64(partition.document_bytes);
            self.snapshot_download(partition.snapshot_download);
            let cause = partition.fatal_error.as_ref().or(partition.last_error.as_ref());
            self.text(cause.map(Error::to_string).unwrap_or_default().as_bytes());
        }
    }

    /// Appends the progress of a download; two zeros mean none, as an image has at least its
    /// header.
    fn snapshot_download(&mut self, download: Option<SnapshotDownload>) {
        let parts = download.map(|download| (download.bytes, download.bytes_in_all));
        let (bytes, bytes_in_all) = parts.unwrap_or_default();
        self.u64(bytes);
        self.u64(bytes_in_all);
    }

    fn duration(&mut self, duration: Option<Duration>) {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        self.i64(duration.map_or(NONE, micros));
    }
}

fn phase_code(phase: Phase) -> u8 {
    match phase {
        Phase::Bootstrapping => 1,
        Phase::Serving => 2,
        Phase::Poisoned => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetched_bytes_precede_total_bytes() {
        let packed = |download| {
            let mut packer = Packer::default();
            packer.snapshot_download(download);
            packer.into_bytes()
        };
        let bytes = packed(Some(SnapshotDownload { bytes: 5, bytes_in_all: 9 }));
        assert_eq!(bytes, [5_u64.to_le_bytes(), 9_u64.to_le_bytes()].concat());
        assert_eq!(packed(None), [0; 16]);
    }
}
