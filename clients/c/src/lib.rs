//! The C ABI of Forebay's native core, `include/forebay.h`, and the JNI entry points over it.
//!
//! The library binds the Rust client and nothing else. A caller refers to each object by an id of
//! an object and its generation, so that a second close and a use after close are a typed `Closed`.
//! Every entry point catches unwinding, returns a status, and fills the caller's error. The
//! caller's memory is read only during the call.
//!
//! `fault` turns failures into statuses, `registry` has the open objects, `abi` has the structs of
//! the header, `input` reads the caller's memory, and `output` creates the bytes that the caller
//! frees.

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
