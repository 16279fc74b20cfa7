//! The status of a reader, packed as `fb_reader_metrics` of the header describes.

use std::time::Duration;

use forebay::Error;
use forebay::status::{Fetching, Phase, ReaderMetrics, ReaderStatus};

use crate::output::{NONE, Packer};

impl Packer {
    pub(crate) fn metrics(&mut self, metrics: &ReaderMetrics) {
        let records = &metrics.records;
        for count in [
            metrics.reads.hits,
            metrics.reads.misses,
            metrics.memory_bytes,
            metrics.memory.used,
            metrics.memory.limit.unwrap_or(u64::MAX),
            metrics.memory.spilled,
            metrics.memory.spill_limit,
            records.applied,
            records.read_bytes,
            records.skipped,
            records.repeats,
            records.too_large,
            records.log_errors,
            records.rebuilds,
            records.bootstraps,
            records.bootstraps_failed,
            records.checkpoints.written,
            records.checkpoints.failed,
            records.checkpoints.restored,
            records.checkpoints.damaged,
            records.checkpoints.ignored,
            records.checkpoints.blocks_mended,
        ] {
            self.u64(count);
        }
        self.status(&metrics.status);
    }

    fn status(&mut self, status: &ReaderStatus) {
        self.text(status.store.as_bytes());
        self.u8(status.is_ready.into());
        self.u8(phase_code(status.phase));
        self.u8(status.percent);
        self.duration(status.remaining);
        self.duration(status.age);
        self.u32(status.schema_version.0);
        self.u32(status.partitions.len() as u32);
        for partition in &status.partitions {
            self.u32(partition.partition.0);
            self.u8(phase_code(partition.phase));
            self.u32(partition.generation);
            self.u64(partition.offset_applied.0);
            self.u64(partition.end.0);
            self.u64(partition.lag_records);
            self.duration(partition.age);
            self.u32(partition.schema_version.0);
            self.u64(partition.documents);
            self.u64(partition.bytes);
            self.fetching(partition.fetching);
            let why = partition.halted.as_ref().or(partition.trouble.as_ref());
            self.text(why.map(Error::to_string).unwrap_or_default().as_bytes());
        }
    }

    /// Appends the progress of a download; two zeros mean none, as an image has at least its
    /// header.
    fn fetching(&mut self, fetching: Option<Fetching>) {
        let parts = fetching.map(|fetching| (fetching.bytes, fetching.bytes_in_all));
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
    fn what_is_fetched_comes_before_all_of_it() {
        let packed = |fetching| {
            let mut packer = Packer::default();
            packer.fetching(fetching);
            packer.into_bytes()
        };
        let bytes = packed(Some(Fetching { bytes: 5, bytes_in_all: 9 }));
        assert_eq!(bytes, [5_u64.to_le_bytes(), 9_u64.to_le_bytes()].concat());
        assert_eq!(packed(None), [0; 16]);
    }
}
