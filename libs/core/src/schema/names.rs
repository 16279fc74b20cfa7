//! Checks of the names, ids and times to live in a definition.

use crate::error::{Error, Result};
use crate::id::FieldId;
use crate::limits::{FIELD_ID_MAX, NAME_BYTES_MAX, TTL_US_MAX};

/// Refuses a field id beyond the limit.
pub(super) fn check_field_id(id: FieldId) -> Result<()> {
    if id.0 <= FIELD_ID_MAX {
        return Ok(());
    }
    let advice = "the store has used up its field ids; move the documents into a new store";
    Err(Error::limit_exceeded(advice, FIELD_ID_MAX.into(), id.0.into()))
}

/// Refuses a time to live that is not above 0, or over the limit.
pub(crate) fn check_ttl(ttl_us: Option<i64>) -> Result<()> {
    match ttl_us {
        Some(ttl) if ttl <= 0 => Err(Error::invalid_argument(
            "a time to live must be above 0 microseconds; delete the value to end it now",
        )),
        Some(ttl) if ttl > TTL_US_MAX => Err(Error::limit_exceeded(
            "the time to live is too long; shorten it, or leave it out to keep the value without \
             end",
            TTL_US_MAX as u64,
            ttl as u64,
        )),
        _ => Ok(()),
    }
}

/// Refuses a store or field name that is empty, too long or not printable.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid_argument("the name is empty; give at least one character"));
    }
    if name.len() > NAME_BYTES_MAX {
        let (limit, actual) = (NAME_BYTES_MAX as u64, name.len() as u64);
        return Err(Error::limit_exceeded("the name is too long; shorten the name", limit, actual));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid_argument(
            "the name has a control character; remove the character",
        ));
    }
    Ok(())
}
