//! Status and metrics of a reader, as the package's data classes.

use std::time::Duration;

use forebay::status::{
    CatchUp, CheckpointCounts, Counts, PartitionStatus, ReaderMetrics, ReaderStatus,
    RebuildProgress, SnapshotDownload,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::{CallError, exception};
use crate::python::model;

fn seconds(duration: Option<Duration>) -> Option<f64> {
    duration.map(|duration| duration.as_secs_f64())
}

/// Returns a `forebay.ReaderStatus`.
pub(crate) fn status_object<'py>(
    py: Python<'py>,
    status: &ReaderStatus,
) -> Result<Bound<'py, PyAny>, CallError> {
    let partitions = status.partitions.iter().map(|partition| partition_object(py, partition));
    let partitions = PyList::new(py, partitions.collect::<Result<Vec<_>, _>>()?)?;
    let parts = PyDict::new(py);
    parts.set_item("store", &status.store)?;
    parts.set_item("is_ready", status.is_ready)?;
    parts.set_item("phase", status.phase.name())?;
    parts.set_item("bootstrap_percent", status.bootstrap_percent)?;
    parts.set_item("bootstrap_remaining", seconds(status.bootstrap_remaining))?;
    parts.set_item("age", seconds(status.age))?;
    parts.set_item("schema_version", status.schema_version.0)?;
    parts.set_item("partitions", partitions.to_tuple())?;
    Ok(model(py, "ReaderStatus", &parts)?)
}

fn partition_object<'py>(
    py: Python<'py>,
    status: &PartitionStatus,
) -> Result<Bound<'py, PyAny>, CallError> {
    let error =
        |error: Option<&forebay::Error>| error.map(|error| exception(py, error, None)).transpose();
    let parts = PyDict::new(py);
    parts.set_item("partition", status.partition.0)?;
    parts.set_item("phase", status.phase.name())?;
    parts.set_item("generation", status.generation)?;
    parts.set_item("log_id", status.log_id.map(|log| log.0))?;
    parts.set_item("position", status.position.map(|position| position.to_string()))?;
    parts.set_item("offset_applied", status.offset_applied.0)?;
    parts.set_item("end_offset", status.end_offset.0)?;
    parts.set_item("lag_records", status.lag_records)?;
    parts.set_item("age", seconds(status.age))?;
    parts.set_item("clock_error", seconds(status.clock_error))?;
    parts.set_item("schema_version", status.schema_version.0)?;
    parts.set_item("documents", status.documents)?;
    parts.set_item("document_bytes", status.document_bytes)?;
    parts.set_item("catch_up", catch_up_object(py, status.catch_up)?)?;
    let download = status.snapshot_download.map(|download| download_object(py, download));
    parts.set_item("snapshot_download", download.transpose()?)?;
    let rebuild = status.rebuild.as_ref().map(|rebuild| rebuild_object(py, rebuild));
    parts.set_item("rebuild", rebuild.transpose()?)?;
    parts.set_item("fatal_error", error(status.fatal_error.as_ref())?)?;
    parts.set_item("last_error", error(status.last_error.as_ref())?)?;
    parts.set_item("counts", counts_object(py, &status.counts)?)?;
    Ok(model(py, "PartitionStatus", &parts)?)
}

fn catch_up_object(py: Python<'_>, catch_up: CatchUp) -> PyResult<Bound<'_, PyAny>> {
    let parts = PyDict::new(py);
    parts.set_item("start", catch_up.start.0)?;
    parts.set_item("offset_applied", catch_up.offset_applied.0)?;
    parts.set_item("target", catch_up.target.0)?;
    parts.set_item("percent", catch_up.percent())?;
    model(py, "CatchUp", &parts)
}

fn rebuild_object<'py>(py: Python<'py>, rebuild: &RebuildProgress) -> PyResult<Bound<'py, PyAny>> {
    let parts = PyDict::new(py);
    parts.set_item("generation", rebuild.generation)?;
    parts.set_item("log_id", rebuild.log_id.map(|log| log.0))?;
    parts.set_item("catch_up", catch_up_object(py, rebuild.catch_up)?)?;
    parts.set_item("reason", exception(py, &rebuild.reason, None)?)?;
    model(py, "RebuildProgress", &parts)
}

fn download_object(py: Python<'_>, download: SnapshotDownload) -> PyResult<Bound<'_, PyAny>> {
    let parts = PyDict::new(py);
    parts.set_item("bytes", download.bytes)?;
    parts.set_item("bytes_in_all", download.bytes_in_all)?;
    model(py, "SnapshotDownload", &parts)
}

fn counts_object<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyAny>> {
    let parts = PyDict::new(py);
    parts.set_item("records_applied", counts.records_applied)?;
    parts.set_item("log_bytes_read", counts.log_bytes_read)?;
    parts.set_item("records_skipped", counts.records_skipped)?;
    parts.set_item("duplicates_skipped", counts.duplicates_skipped)?;
    parts.set_item("oversized_skipped", counts.oversized_skipped)?;
    parts.set_item("log_errors", counts.log_errors)?;
    parts.set_item("rebuilds", counts.rebuilds)?;
    parts.set_item("bootstraps", counts.bootstraps)?;
    parts.set_item("bootstraps_failed", counts.bootstraps_failed)?;
    parts.set_item("checkpoints", checkpoints_object(py, &counts.checkpoints)?)?;
    model(py, "Counts", &parts)
}

fn checkpoints_object<'py>(
    py: Python<'py>,
    counts: &CheckpointCounts,
) -> PyResult<Bound<'py, PyAny>> {
    let parts = PyDict::new(py);
    parts.set_item("written", counts.written)?;
    parts.set_item("failed", counts.failed)?;
    parts.set_item("restored", counts.restored)?;
    parts.set_item("damaged", counts.damaged)?;
    parts.set_item("ignored", counts.ignored)?;
    parts.set_item("blocks_repaired", counts.blocks_repaired)?;
    model(py, "CheckpointCounts", &parts)
}

/// Returns a `forebay.ReaderMetrics`.
pub(crate) fn metrics_object<'py>(
    py: Python<'py>,
    metrics: &ReaderMetrics,
) -> Result<Bound<'py, PyAny>, CallError> {
    let reads = PyDict::new(py);
    reads.set_item("hits", metrics.reads.hits)?;
    reads.set_item("misses", metrics.reads.misses)?;
    let memory = PyDict::new(py);
    memory.set_item("used", metrics.memory.used)?;
    memory.set_item("limit", metrics.memory.limit)?;
    memory.set_item("spilled", metrics.memory.spilled)?;
    memory.set_item("spill_limit", metrics.memory.spill_limit)?;
    let parts = PyDict::new(py);
    parts.set_item("reads", model(py, "ReadCounts", &reads)?)?;
    parts.set_item("memory_bytes", metrics.memory_bytes)?;
    parts.set_item("memory", model(py, "MemoryUse", &memory)?)?;
    parts.set_item("counts", counts_object(py, &metrics.counts)?)?;
    parts.set_item("status", status_object(py, &metrics.status)?)?;
    Ok(model(py, "ReaderMetrics", &parts)?)
}
