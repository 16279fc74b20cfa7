//! Reasons to refuse a message: the message lacks a part that every build sends, or it has content
//! that only a newer build knows. The two need different codes (see `proto/spec/entry.md`).

use forebay_core::{Error, Result};

/// Returns the error for a missing part that every build sends.
pub(crate) fn unset(what: &str) -> Error {
    Error::invalid_argument(format!("the message lacks {what}; set it"))
}

/// Returns the error for a `oneof` without a member that this build knows, or for an unknown enum
/// number.
pub(crate) fn newer(what: &str) -> Error {
    Error::upgrade_needed(format!("this build does not know {what}; upgrade this process"))
}

/// Converts the number of a wire enum to the domain's enum.
///
/// # Errors
/// Returns `InvalidArgument` for 0, which no build sends; `UpgradeNeeded` for an unknown number.
pub(crate) fn from_number<Wire, Domain>(number: i32, what: &str) -> Result<Domain>
where
    Wire: TryFrom<i32>,
    Domain: TryFrom<Wire, Error = Error>,
{
    let wire =
        Wire::try_from(number).map_err(|_| newer(&format!("the {what} with number {number}")))?;
    Domain::try_from(wire)
}

/// Generates the conversions between an enum of the domain and an enum of the wire.
macro_rules! enumeration {
    ($what:literal: $domain:ty, $wire:ty { $($ours:ident = $theirs:ident),* $(,)? }) => {
        impl From<$domain> for $wire {
            fn from(domain: $domain) -> Self {
                match domain {
                    $(<$domain>::$ours => Self::$theirs,)*
                }
            }
        }

        impl TryFrom<$wire> for $domain {
            type Error = forebay_core::Error;

            fn try_from(wire: $wire) -> forebay_core::Result<Self> {
                match wire {
                    <$wire>::Unspecified => Err($crate::decode_error::unset($what)),
                    $(<$wire>::$theirs => Ok(Self::$ours),)*
                }
            }
        }
    };
}

pub(crate) use enumeration;
