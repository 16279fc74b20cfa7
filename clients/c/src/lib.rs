//! The C ABI of Forebay's native core, `include/forebay.h`, and the JNI entry points over it.
//!
//! The library binds the Rust client and nothing else. A caller refers to each object by an id of
//! an object and its generation, so that a second close and a use after close are a typed `Closed`.
//! Every entry point catches unwinding, returns a status, and fills the caller's error. The
//! caller's memory is read only during the call.
//!
//! `error` turns failures into statuses, `handles` has the types of the objects, `registry` has the
//! open objects by id, `abi` has the structs of the header, `input` reads the caller's memory,
//! `output` creates the bytes that the caller frees, and `release` frees them.

#![allow(clippy::too_many_arguments, reason = "a C function has no other way to take options")]

mod abi;
mod admin;
mod async_write;
mod batch_read;
mod error;
mod event;
mod field;
mod handles;
mod inbox;
mod input;
mod java_critical;
mod jni;
mod keys;
mod log;
mod memory;
mod output;
mod process;
mod reader;
mod registry;
mod release;
mod select;
mod status;
mod verify;
mod write;
