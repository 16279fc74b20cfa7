//! Selects of a stream's retained events: the criteria from the caller, and the result, packed as
//! `fb_store_select` of the header describes.

use std::ops::Bound;

use forebay::reads::{Select, Selected, SelectedEvent};
use forebay::schema::Timestamp;
use forebay::{Error, Result};

use crate::abi::{FbBytes, FbError, FbRead, FbSelect};
use crate::error::ffi_call;
use crate::input::{one, put, read_options, slice};
use crate::output::{Packer, type_code};
use crate::process::{wait, wait_here};
use crate::registry;

/// Criteria and options of a select; `FB_SELECT_*` in the header.
const KEY: u32 = 1;
const EQUAL: u32 = 2;
const BETWEEN: u32 = 4;
const FROM: u32 = 8;
const TO: u32 = 16;
const ORDER_BY: u32 = 32;
const DESCENDING: u32 = 64;
const ALL: u32 = KEY | EQUAL | BETWEEN | FROM | TO | ORDER_BY | DESCENDING;

/// Selects events of a stream and waits for the result.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_select(
    store: u64,
    select: *const FbSelect,
    read: *const FbRead,
    selected: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(store)?;
        let store = open.store()?.store()?;
        // SAFETY: the caller follows the header's rules.
        let asked = unsafe { reading(narrowed(store.select(), select)?, read)? };
        let found =
            if store.is_in_memory() { wait_here(asked.send())? } else { wait(asked.send())? };
        let mut packer = Packer::default();
        packer.selected(&found?)?;
        // SAFETY: as above.
        unsafe { put(selected, packer.finish()) };
        Ok(())
    })
}

/// Returns the select, narrowed by the caller's struct; null changes nothing.
///
/// # Safety
/// The rules of [`one`] apply to every pointer inside; `given` may be null.
unsafe fn narrowed(select: Select, given: *const FbSelect) -> Result<Select> {
    if given.is_null() {
        return Ok(select);
    }
    // SAFETY: the caller vouches for it.
    unsafe { one(given)?.narrow(select) }
}

/// Returns the select, with its wait.
///
/// # Safety
/// The rules of [`read_options`] apply.
///
/// # Errors
/// Errors of [`read_options`]; `InvalidArgument` for a read that waits for no disk.
unsafe fn reading(select: Select, read: *const FbRead) -> Result<Select> {
    // SAFETY: the caller vouches for it.
    let options = unsafe { read_options(read)? };
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

impl FbSelect {
    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown option, and for invalid keys, values and texts.
    unsafe fn narrow(&self, mut select: Select) -> Result<Select> {
        if self.asks & !ALL != 0 {
            let message = "the flags are unknown to a select; see FB_SELECT in forebay.h";
            return Err(Error::invalid_argument(message));
        }
        if self.has(KEY) {
            // SAFETY: the caller vouches for it.
            select = select.key(unsafe { self.key.key()? });
        }
        // SAFETY: as above.
        select = unsafe { self.find(select)? };
        if self.has(FROM) {
            select = select.from(Timestamp::from_micros(self.from_us));
        }
        if self.has(TO) {
            select = select.to(Timestamp::from_micros(self.to_us));
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
    unsafe fn find(&self, mut select: Select) -> Result<Select> {
        if !self.has(EQUAL) && !self.has(BETWEEN) {
            return Ok(select);
        }
        // SAFETY: the caller vouches for it.
        let (column, from, to) =
            unsafe { (self.column.text()?, self.from.value(), self.to.value()) };
        let at_column = |error: Error| error.with_field(column);
        let from = from.map_err(at_column)?;
        if self.has(BETWEEN) {
            let to = to.map_err(at_column)?.map_or(Bound::Unbounded, Bound::Excluded);
            let from = from.clone().map_or(Bound::Unbounded, Bound::Included);
            select = select.between(column, (from, to));
        }
        if self.has(EQUAL) {
            let none = || at_column(Error::invalid_argument("the select names no value; name one"));
            select = select.equal(column, from.ok_or_else(none)?);
        }
        Ok(select)
    }

    fn has(&self, part: u32) -> bool {
        self.asks & part != 0
    }
}

impl Packer {
    fn selected(&mut self, selected: &Selected) -> Result<()> {
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

    fn event(&mut self, event: &SelectedEvent) -> Result<()> {
        self.key(event.key()?);
        // A stream is partitioned by its key.
        self.u32(0);
        self.i64(event.time.as_micros());
        self.i64(event.append_time.as_micros());
        self.u32(event.partition.0);
        self.u64(event.offset.0);
        self.u32(event.place);
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

    fn given(asks: u32) -> FbSelect {
        let key =
            FbKey { key_type: 0, partition_key_type: 0, key: NO_TEXT, partition_key: NO_TEXT };
        FbSelect {
            asks,
            limit: 0,
            key,
            column: FbText { data: b"city".as_ptr(), length: 4 },
            from: NO_VALUE,
            to: NO_VALUE,
            from_us: 0,
            to_us: 0,
            columns: std::ptr::null(),
            column_count: 0,
            order_by: NO_TEXT,
        }
    }

    /// Creates a select that is not sent: its store is in memory.
    fn select() -> Select {
        let spec = StoreSpec::documents("users", KeyType::String, 1);
        Reader::in_memory(&spec, []).unwrap().as_store().select()
    }

    #[test]
    fn what_no_select_asks_for_is_refused() {
        let refused = |asks| {
            // SAFETY: the pointers are to static data.
            let error = unsafe { given(asks).narrow(select()) }.err().unwrap();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            error.context().field.clone()
        };
        assert_eq!(refused(ALL + 1), None);
        assert_eq!(refused(KEY), None, "a key has a type");
        assert_eq!(refused(EQUAL).as_deref(), Some("city"), "null is no value");
        // SAFETY: as above.
        unsafe {
            assert!(given(0).narrow(select()).is_ok());
            assert!(given(BETWEEN | FROM | TO | DESCENDING).narrow(select()).is_ok());
            assert!(narrowed(select(), std::ptr::null()).is_ok());
        }
    }

    #[test]
    fn a_select_waits_as_a_read_does_but_for_a_disk() {
        let read =
            |wait| FbRead { wait, reserved: 0, timeout_ms: 1, max_staleness_ms: 0, token: NO_TEXT };
        // SAFETY: the referents live throughout.
        unsafe {
            assert!(reading(select(), &read(2)).is_ok());
            let error = reading(select(), &read(3)).err().unwrap();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
        }
    }
}
