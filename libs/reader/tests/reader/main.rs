//! Tests of the reader with a log, an index and a clock of their own. All are in a single binary,
//! because the compiler repeats the reader's generic code in each binary.

mod bootstrap;
mod checkpoint;
mod checkpoint_crash;
mod clock;
mod full_disk;
mod in_memory;
mod local_open;
mod log_fault;
mod reads;
mod shared_copy;
mod shutdown;
mod snapshots;
mod spill;
mod torn_page;
mod world;
