//! Byte cursor for the decoders of states and tiles.

use forebay_core::Error;
use forebay_core::fields::Fields;

pub(crate) fn fields(bytes: &[u8]) -> Fields<'_> {
    Fields::new(bytes, || Error::corrupt("the state ends too early"))
}
