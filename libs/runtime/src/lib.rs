//! The runtime of a program of Forebay around its services: the frame of `main`, settings, the
//! dependencies that all services share, listening, draining, low-priority threads, the processes
//! that share the partitions with this one, and the loop that opens and closes what the catalog and
//! the assignment require.
//!
//! Only programs link this crate, so it may print: the ready line on stdout, errors on stderr.

mod context;
mod data_dir;
mod kafka;
mod low_priority;
mod peers;
mod process;
mod program;
mod reconciler;
mod server;
mod settings;

pub use context::ServiceContext;
pub use data_dir::DataDir;
pub use kafka::KafkaSettings;
pub use low_priority::LowPriorityRuntime;
pub use peers::{Owner, Peers, forwarded, is_forwarded, process_address};
pub use process::{Process, ProcessSettings};
pub use program::{main, print_ready, run};
pub use reconciler::{OpenResources, Reconciler, ServiceResources, StoreResource, remove_dropped};
pub use server::{RoleServices, Signals, bind, check_loopback, serve};
pub use settings::{
    CopySettings, DataSettings, ExportSettings, ListenSettings, ShardSettings, SnapshotSchedule,
    SnapshotSettings, SqlSettings, parse_size,
};
