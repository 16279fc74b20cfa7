//! Record sharing between two versions of a partition: the new version's space (the borrower)
//! refers to records in the live space of the previous version (the donor), if both versions have
//! them in equal form.
//!
//! The parts, from the bottom up:
//!
//! - `borrowed_memory`: the borrower maps the donor's file read-only after its own addresses. The
//!   borrower has its own name for that file, a second hard link, so the file exists for as long as
//!   the borrower does. Each process that maps the file holds a shared lock on it (flock), which
//!   ends with the process.
//! - `lent_memory`: the donor continues as before, with one exception: memory that goes out of use
//!   in the blocks that it has lent is not reused while such a name or such a lock exists. A record
//!   in those blocks therefore stays as it is, whatever the donor does with the document.
//! - `donor`: the donor as the borrower's writer sees it, and the donor's record of each document
//!   that both versions have in equal form.
//! - `generations`: a generation that shares records with a donor, and one that shares none any
//!   more.
//!
//! `memory` imports `borrowed_memory` alone. All other parts are above `memory`, and the last two
//! are above `table`.

mod borrowed_memory;
mod donor;
mod generations;
mod lent_memory;

pub(crate) use borrowed_memory::{BORROWED, Borrowed, borrowed_bytes};
pub(crate) use donor::DonorSpace;
pub(crate) use generations::has_most;
