//! The native module of Forebay's Python client, `forebay._native`.
//!
//! The module binds the Rust client and nothing else: there is no second implementation. The
//! package `forebay` around the module gives the classes their names, types and documentation;
//! `_native.pyi`, which `clients/bindings` generates, declares the contents.

mod asked;
mod attached;
mod buffer;
mod call;
mod change;
mod client;
mod fault;
mod found;
mod gather;
mod key;
mod log;
mod memory;
mod opening;
mod ordered;
mod process;
mod python;
mod reader;
mod scan;
mod schema;
mod select;
mod status;
mod stream;
mod value;
mod verified;

/// The native side of the package `forebay`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::call::{Call, Completions, Pending, Started};
    #[pymodule_export]
    use crate::change::{Change, Operation};
    #[pymodule_export]
    use crate::client::{NativeClient, NativeStore, connect};
    #[pymodule_export]
    use crate::gather::Plan;
    #[pymodule_export]
    use crate::log::{close_log, next_records, set_log_level};
    #[pymodule_export]
    use crate::memory::NativeMemory;
    #[pymodule_export]
    use crate::opening::{OpenedReader, open_reader};
    #[pymodule_export]
    use crate::ordered::{NativeOrdered, NativeOrderedScan};
    #[pymodule_export]
    use crate::process::after_fork_in_child;
    #[pymodule_export]
    use crate::reader::{Handle, NativeReader};
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
