//! How a reader is, packed as `fb_reader_metrics` of the header says.

use std::time::Duration;

use forebay::{Error, Phase, ReaderMetrics, ReaderStatus};

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
            let why = partition.halted.as_ref().or(partition.trouble.as_ref());
            self.text(why.map(Error::to_string).unwrap_or_default().as_bytes());
        }
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
