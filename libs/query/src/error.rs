//! Conversion between the engine's errors and Forebay's.

use std::io;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use forebay_core::{Error, ErrorCode};

/// Wraps a Forebay error for its way through the engine.
pub(crate) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Converts an engine error: an invalid statement, an exceeded budget, or a wrapped Forebay error.
pub(crate) fn from_engine(error: &DataFusionError) -> Error {
    let root = error.find_root();
    match root {
        DataFusionError::External(error) => outside(&**error, root),
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::ExternalError(error) => outside(&**error, root),
            ArrowError::IoError(_, error) => of_disk(error),
            _ => Error::invalid_argument(root.strip_backtrace()),
        },
        DataFusionError::IoError(error) => of_disk(error),
        DataFusionError::ResourcesExhausted(_) => too_much(&root.strip_backtrace()),
        DataFusionError::NotImplemented(_) => Error::unsupported(root.strip_backtrace()),
        DataFusionError::Internal(_) => Error::internal(root.strip_backtrace()),
        // The engine reports an invalid statement when it plans the statement, or when it reaches a
        // row.
        _ => Error::invalid_argument(root.strip_backtrace()),
    }
}

/// Converts an error of writing or reading spilled data.
fn of_disk(error: &io::Error) -> Error {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<DataFusionError>()) {
        return from_engine(error);
    }
    let message = error.to_string();
    // The engine reports its own limit only by these words.
    if message.contains("used disk space during the spilling") {
        return too_much("the spilled rows exceed the limit");
    }
    if error.kind() == io::ErrorKind::StorageFull {
        return too_much(&message);
    }
    Error::of_disk("the statement could not spill rows", error)
}

fn outside(error: &(dyn std::error::Error + 'static), root: &DataFusionError) -> Error {
    if let Some(ours) = error.downcast_ref::<Error>() {
        return ours.clone();
    }
    match error.downcast_ref::<DataFusionError>() {
        Some(error) => from_engine(error),
        None => Error::internal(root.strip_backtrace()),
    }
}

fn too_much(message: &str) -> Error {
    let advice = "the statement needs more than its budget; group or join fewer rows";
    Error::new(ErrorCode::LimitExceeded, format!("{advice}: {message}"))
}
