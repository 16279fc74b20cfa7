//! The C ABI of Forebay's native core, `include/forebay.h`, and the JNI entry points over it.
//!
//! It binds the Rust client and nothing else. Everything that a caller holds is an id that says
//! which object and which generation it is, so that a second close and a use after close are a
//! typed `Closed`. Every entry point catches unwinding, answers a status, and fills the caller's
//! error. What points into the caller's memory is read during the call alone.
//!
//! `fault` turns failures into statuses, `registry` holds what is open, `abi` has the structs of
//! the header, `input` reads what the caller points at, `output` makes what the caller frees.

#![allow(clippy::too_many_arguments, reason = "a C function has no other way to take options")]

mod abi;
mod admin;
mod event;
mod fault;
mod field;
mod heap;
mod input;
mod jni;
mod keys;
mod later;
mod log;
mod many;
mod memory;
mod output;
mod process;
mod read;
mod registry;
mod select;
mod status;
mod verify;
mod write;
