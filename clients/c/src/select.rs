//! Selects of a stream's retained events: the criteria from the caller, and the result, packed as
//! `fb_store_select` of the header describes.

use std::ops::Bound;

use forebay::reads::{Event, EventQuery, EventQueryResult};
use forebay::schema::Timestamp;
use forebay::{Error, Result};

use crate::abi::{FbBytes, FbError, FbEventQuery, FbReadOptions};
use crate::error::ffi_call;
use crate::input::{one, put, read_arguments, slice};
use crate::output::{Packer, type_code};
use crate::process::{wait, wait_here};
use crate::registry;

/// Criteria and options of a select; `FB_SELECT_*` in the header.
const KEY: u32 = 1;
const EQUAL: u32 = 2;
const BETWEEN: u32 = 4;
const START: u32 = 8;
const END: u32 = 16;
const ORDER_BY: u32 = 32;
const DESCENDING: u32 = 64;
const ALL: u32 = KEY | EQUAL | BETWEEN | START | END | ORDER_BY | DESCENDING;

/// Selects events of a stream and waits for the result.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_select(
    store: u64,
    query: *const FbEventQuery,
    read: *const FbReadOptions,
    result: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(store)?;
        let store = open.store()?.store()?;
        // SAFETY: the caller follows the header's rules.
        let event_query = unsafe { reading(narrowed(store.select(), query)?, read)? };
        let found = if store.is_in_memory() {
            wait_here(event_query.send())?
        } else {
            wait(event_query.send())?
        };
        let mut packer = Packer::default();
        packer.selected(&found?)?;
        // SAFETY: as above.
        unsafe { put(result, packer.finish()) };
        Ok(())
    })
}

/// Returns the select, narrowed by the caller's struct; null changes nothing.
///
/// # Safety
/// The rules of [`one`] apply to every pointer inside; `query` may be null.
unsafe fn narrowed(select: EventQuery, query: *const FbEventQuery) -> Result<EventQuery> {
    if query.is_null() {
        return Ok(select);
    }
    // SAFETY: the caller vouches for it.
    unsafe { one(query)?.narrow(select) }
}

/// Returns the select, with its wait.
///
/// # Safety
/// The rules of [`read_arguments`] apply.
///
/// # Errors
/// Errors of [`read_arguments`]; `InvalidArgument` for a read that waits for no disk.
unsafe fn reading(select: EventQuery, read: *const FbReadOptions) -> Result<EventQuery> {
    // SAFETY: the caller vouches for it.
    let options = unsafe { read_arguments(read)? };
    if options.in_memory {
        let message = "a node answers selects from its disk, so a select cannot avoid the wait; \
            ask for another wait";
        return Err(Error::invalid_argument(message));
    }
    Ok(select.read(match options.max_staleness {
        Some(bound) => options.read.max_staleness(bound),
        None => options.read,
    }))
}

impl FbEventQuery {
    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown option, and for invalid keys, values and texts.
    unsafe fn narrow(&self, mut select: EventQuery) -> Result<EventQuery> {
        if self.flags & !ALL != 0 {
            let message = "the flags are unknown to a select; see FB_SELECT in forebay.h";
            return Err(Error::invalid_argument(message));
        }
        if self.has(KEY) {
            // SAFETY: the caller vouches for it.
            select = select.key(unsafe { self.key.key()? });
        }
        // SAFETY: as above.
        select = unsafe { self.find(select)? };
        if self.has(START) {
            select = select.start(Timestamp::from_micros(self.start_us));
        }
        if self.has(END) {
            select = select.end(Timestamp::from_micros(self.end_us));
        }
        if self.has(ORDER_BY) {
            // SAFETY: as above.
            select = select.order_by(unsafe { self.order_by.text()? });
        }
        if self.has(DESCENDING) {
            select = select.descending();
        }
        // SAFETY: as above.
        let columns = unsafe { slice(self.columns, self.column_count)? }.iter().map(|name| {
            // SAFETY: as above.
            unsafe { name.text() }
        });
        Ok(select.columns(columns.collect::<Result<Vec<_>>>()?).limit(self.limit))
    }

    /// Returns the select, narrowed by its criterion on a column.
    ///
    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    unsafe fn find(&self, mut select: EventQuery) -> Result<EventQuery> {
        if !self.has(EQUAL) && !self.has(BETWEEN) {
            return Ok(select);
        }
        // SAFETY: the caller vouches for it.
        let (column, start, end) =
            unsafe { (self.column.text()?, self.start.value(), self.end.value()) };
        let at_column = |error: Error| error.with_field(column);
        let start = start.map_err(at_column)?;
        if self.has(BETWEEN) {
            let end = end.map_err(at_column)?.map_or(Bound::Unbounded, Bound::Excluded);
            let start = start.clone().map_or(Bound::Unbounded, Bound::Included);
            select = select.between(column, (start, end));
        }
        if self.has(EQUAL) {
            let no_value =
                || at_column(Error::invalid_argument("the select names no value; name one"));
            select = select.equal(column, start.ok_or_else(no_value)?);
        }
        Ok(select)
    }

    fn has(&self, part: u32) -> bool {
        self.flags & part != 0
    }
}

impl Packer {
    fn selected(&mut self, selected: &EventQueryResult) -> Result<()> {
        self.text(&selected.token.encode());
        self.u32(selected.columns.len() as u32);
        for column in selected.columns.iter() {
            self.u32(column.id.0);
            self.text(column.name.as_bytes());
            self.u32(type_code(column.field_type));
        }
        self.u32(selected.events.len() as u32);
        selected.events.iter().try_for_each(|event| self.event(event))
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        self.key(event.key()?);
        // A stream is partitioned by its key.
        self.u32(0);
        self.i64(event.time.as_micros());
        self.i64(event.append_time.as_micros());
        self.u32(event.partition.0);
        self.u64(event.offset.0);
        self.u32(event.index_in_entry);
        self.u32(event.values().count() as u32);
        for (column, value) in event.values() {
            self.u32(column.id.0);
            self.value(value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forebay::schema::{KeyType, StoreSpec};
    use forebay::{ErrorCode, Reader};

    use super::*;
    use crate::abi::{FbKey, FbText, FbValue};

    const NO_TEXT: FbText = FbText { data: std::ptr::null(), length: 0 };
    const NO_VALUE: FbValue = FbValue { value_type: 0, reserved: 0, data: NO_TEXT };

    fn query_of(flags: u32) -> FbEventQuery {
        let key =
            FbKey { key_type: 0, partition_key_type: 0, key: NO_TEXT, partition_key: NO_TEXT };
        FbEventQuery {
            flags,
            limit: 0,
            key,
            column: FbText { data: b"city".as_ptr(), length: 4 },
            start: NO_VALUE,
            end: NO_VALUE,
            start_us: 0,
            end_us: 0,
            columns: std::ptr::null(),
            column_count: 0,
            order_by: NO_TEXT,
        }
    }

    /// Creates a select that is not sent: its store is in memory.
    fn select() -> EventQuery {
        let spec = StoreSpec::documents("users", KeyType::String).partitions(1);
        Reader::in_memory(&spec, []).unwrap().as_store().select()
    }

    #[test]
    fn unknown_select_flags_and_null_operands_are_refused() {
        let code_of_flags = |flags| {
            // SAFETY: the pointers are to static data.
            let error = unsafe { query_of(flags).narrow(select()) }.err().unwrap();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            error.context().field.clone()
        };
        assert_eq!(code_of_flags(ALL + 1), None);
        assert_eq!(code_of_flags(KEY), None, "a key has a type");
        assert_eq!(code_of_flags(EQUAL).as_deref(), Some("city"), "null is no value");
        // SAFETY: as above.
        unsafe {
            assert!(query_of(0).narrow(select()).is_ok());
            assert!(query_of(BETWEEN | START | END | DESCENDING).narrow(select()).is_ok());
            assert!(narrowed(select(), std::ptr::null()).is_ok());
        }
    }

    #[test]
    fn select_accepts_the_waits_of_a_read_except_for_disk() {
        let read = |wait| FbReadOptions {
            wait,
            reserved: 0,
            timeout_ms: 1,
            max_staleness_ms: 0,
            token: NO_TEXT,
        };
        // SAFETY: the referents live throughout.
        unsafe {
            assert!(reading(select(), &read(2)).is_ok());
            let error = reading(select(), &read(3)).err().unwrap();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
        }
    }
}
