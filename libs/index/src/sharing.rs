//! Record sharing between two versions of a partition: the new version's space (the recipient)
//! refers to records in the shared space of the previous version (the donor), if both versions have
//! them in equal form.
//!
//! The parts, from the bottom up:
//!
//! - `donor_mapping`: the recipient maps the donor's file read-only after its own addresses. The
//!   recipient has its own name for that file, a second hard link, so the file exists for as long
//!   as the recipient does. Each process that maps the file holds a shared lock on it (flock),
//!   which ends with the process.
//! - `donated_memory`: the donor continues as before, with one exception: memory that goes out of
//!   use in the blocks that it has donated is not reused while such a name or such a lock exists. A
//!   record in those blocks therefore stays as it is, whatever the donor does with the document.
//! - `donor`: the donor as the recipient's writer sees it, and the donor's record of each document
//!   that both versions have in equal form.
//! - `generations`: a generation that shares records with a donor, and one that shares none any
//!   more.
//!
//! `memory` imports `donor_mapping` alone. All other parts are above `memory`, and the last two
//! are above `table`.

mod donated_memory;
mod donor;
mod donor_mapping;
mod generations;

pub(crate) use donor::DonorSpace;
pub(crate) use donor_mapping::{DONOR_LINK_SUFFIX, DonorMapping, donor_bytes};
pub(crate) use generations::shares_most_documents;
