//! The simulator: the real client, services, log and reader on one thread, a paused clock, a model
//! of a disk and a network that breaks by the seed.

pub mod net;
