//! The native module of Forebay's Python client, `forebay._native`.
//!
//! The module binds the Rust client and nothing else: there is no second implementation. The
//! package `forebay` around the module gives the classes their names, types and documentation;
//! `_native.pyi`, which `clients/bindings` generates, declares the contents.

mod buffer;
mod call;
mod change;
mod client;
mod error;
mod field_handle;
mod fork_aware_reader;
mod gather;
mod key;
mod log;
mod memory;
mod open_options;
mod open_reader;
mod ordered_reads;
mod outcome;
mod process;
mod python;
mod read_options;
mod reader;
mod reader_calls;
mod results;
mod scan;
mod schema;
mod select;
mod status;
mod stream;
mod value;
mod verification;

/// The native side of the package `forebay`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::call::{Call, Completions, StartedCall};
    #[pymodule_export]
    use crate::change::{Change, Operation};
    #[pymodule_export]
    use crate::client::{NativeClient, NativeStore, connect};
    #[pymodule_export]
    use crate::field_handle::NativeFieldHandle;
    #[pymodule_export]
    use crate::gather::Plan;
    #[pymodule_export]
    use crate::log::{close_log, next_records, set_log_level};
    #[pymodule_export]
    use crate::memory::NativeMemory;
    #[pymodule_export]
    use crate::open_reader::{OpenedReader, open_reader};
    #[pymodule_export]
    use crate::ordered_reads::{NativeOrdered, NativeOrderedScan};
    #[pymodule_export]
    use crate::outcome::NativePendingWrite;
    #[pymodule_export]
    use crate::process::after_fork_in_child;
    #[pymodule_export]
    use crate::reader::NativeReader;
    #[pymodule_export]
    use crate::reader_calls::NativeReaderCalls;
    #[pymodule_export]
    use crate::scan::NativeScan;
    #[pymodule_export]
    use crate::schema::{NewAlteration, NewField, NewStore};
    #[pymodule_export]
    use crate::stream::{NativeAcknowledgement, NativeStream};

    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::log::install();
        Ok(())
    }
}
