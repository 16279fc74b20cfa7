//! In-memory readers, for tests of programs that read: a test opens a reader with rows, moves its
//! clock and simulates states. Reads and writes work as for other readers.

use std::time::Duration;

use forebay::schema::Timestamp;
use forebay::testing::SimulatedState;
use forebay::{Error, Reader, Result};

use crate::abi::{FbAlteration, FbBytes, FbChange, FbError, FbStoreSpec};
use crate::error::ffi_call;
use crate::handles::{OpenReader, OpenStore};
use crate::input::{one, put, slice};
use crate::output::Packer;
use crate::process::wait_here;
use crate::registry::{self, Object};
use crate::write::batch_of;

/// Opens an in-memory reader with these rows, and the store that it reads.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_test_reader_open(
    spec: *const FbStoreSpec,
    rows: *const FbChange,
    row_count: u64,
    reader: *mut u64,
    store: *mut u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        // SAFETY: the caller follows the header's rules.
        let memory = Reader::in_memory(&unsafe { one(spec)?.spec()? }, [])?;
        // SAFETY: as above.
        let rows = unsafe { batch_of(memory.as_store(), rows, row_count, 0)? };
        wait_here(rows.send())??.require_complete()?;
        let open_store = OpenStore::in_memory(memory.as_store().clone());
        let store_id = registry::insert(Object::Store(open_store))?;
        let open = registry::insert(Object::Reader(OpenReader::in_memory(memory)));
        let reader_id = open.inspect_err(|_| {
            // The store was opened just before, so closing it cannot fail.
            let _ = registry::close(store_id);
        })?;
        // SAFETY: as above.
        unsafe {
            put(reader, reader_id);
            put(store, store_id);
        }
        Ok(())
    })
}

/// Returns the time of the reader's clock, in microseconds since the Unix epoch.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_test_reader_clock(
    reader: u64,
    now_us: *mut i64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let now = open.reader()?.memory()?.clock();
        // SAFETY: the caller follows the header's rules.
        unsafe { put(now_us, now.as_micros()) };
        Ok(())
    })
}

/// Sets the reader's clock.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_test_reader_set_clock(
    reader: u64,
    now_us: i64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        Ok(open.reader()?.memory()?.set_clock(Timestamp::from_micros(now_us))?)
    })
}

/// Simulates a state of the reader.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_test_reader_simulate(
    reader: u64,
    state: u32,
    age_ms: u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        Ok(open.reader()?.memory()?.simulate(simulated_state(state, age_ms)?)?)
    })
}

fn simulated_state(state: u32, age_ms: u64) -> Result<SimulatedState> {
    Ok(match state {
        0 => SimulatedState::None,
        1 => SimulatedState::NotReady,
        2 => SimulatedState::Stale(Duration::from_millis(age_ms)),
        3 => SimulatedState::Closed,
        _ => {
            let message = "no such state exists; see FB_SIMULATE in forebay.h";
            return Err(Error::invalid_argument(message));
        }
    })
}

/// Alters the reader's store, which gives the store its next version.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_test_reader_alter(
    reader: u64,
    alterations: *const FbAlteration,
    alteration_count: u64,
    definition: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        // SAFETY: the caller follows the header's rules.
        let alterations = unsafe {
            let requested = slice(alterations, alteration_count)?;
            requested
                .iter()
                .map(|alteration| alteration.alteration())
                .collect::<Result<Vec<_>>>()?
        };
        let altered = open.reader()?.memory()?.alter(&alterations)?;
        let mut packer = Packer::default();
        packer.definition(&altered);
        // SAFETY: as above.
        unsafe { put(definition, packer.finish()) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{FbStoreOptions, FbText};
    use crate::release;
    use forebay::ErrorCode;

    fn spec(name: &str) -> FbStoreSpec {
        let text = |text: &str| FbText { data: text.as_ptr(), length: text.len() as u64 };
        FbStoreSpec {
            name: text(name),
            key_type: 1,
            partitions: 2,
            partition_key: text(""),
            fields: std::ptr::null(),
            field_count: 0,
            options: FbStoreOptions {
                ttl_us: -1,
                heartbeat_ms: 0,
                versioned: 0,
                log_retention_us: -1,
                log_retention_bytes: 0,
            },
            key_value: 1,
            stream: 0,
            event_time: text(""),
        }
    }

    #[test]
    fn reader_in_memory_opens_moves_its_clock_simulates_states_and_closes() {
        let (mut reader, mut store, mut now) = (0, 0, 0);
        let null = std::ptr::null_mut();
        let spec = spec("memory");
        // SAFETY: all pointers are to values that live throughout.
        unsafe {
            let rows = std::ptr::null();
            assert_eq!(fb_test_reader_open(&spec, rows, 0, &mut reader, &mut store, null), 0);
            assert_eq!(fb_test_reader_clock(reader, &mut now, null), 0);
            assert_eq!(fb_test_reader_set_clock(reader, now + 1, null), 0);
            let invalid = ErrorCode::InvalidArgument.number();
            assert_eq!(fb_test_reader_set_clock(reader, now, null), invalid);
            assert_eq!(fb_test_reader_simulate(reader, 4, 0, null), invalid);
            assert_eq!(fb_test_reader_clock(store, &mut now, null), invalid);
            assert_eq!(crate::reader::fb_reader_await_ready(reader, 0, null), 0);
            assert_eq!(fb_test_reader_simulate(reader, 1, 0, null), 0);
            let unavailable = ErrorCode::Unavailable.number();
            assert_eq!(crate::reader::fb_reader_await_ready(reader, 1, null), unavailable);
            assert_eq!(fb_test_reader_simulate(reader, 3, 0, null), 0);
            let closed_code = ErrorCode::Closed.number();
            assert_eq!(fb_test_reader_simulate(reader, 0, 0, null), closed_code);
            assert_eq!(release::fb_close(reader, null), 0);
            assert_eq!(fb_test_reader_clock(reader, &mut now, null), closed_code);
            assert_eq!(release::fb_close(store, null), 0);
        }
    }
}
