//! Reasons to refuse a message: the message lacks a part that every build sends, or it has content
//! that only a newer build knows. The two need different codes (see `proto/spec/entry.md`).

use forebay_core::{Error, Result};

/// Returns the error for a missing part that every build sends.
pub(crate) fn unset_error(name: &str) -> Error {
    Error::invalid_argument(format!("the message lacks {name}; set it"))
}

/// Returns the error for a `oneof` without a member that this build knows, or for an unknown enum
/// number.
pub(crate) fn newer_error(name: &str) -> Error {
    Error::upgrade_needed(format!("this build does not know {name}; upgrade this process"))
}

/// Converts the number of a wire enum to the domain's enum.
///
/// # Errors
/// Returns `InvalidArgument` for 0, which no build sends; `UpgradeNeeded` for an unknown number.
pub(crate) fn from_number<Wire, Domain>(number: i32, name: &str) -> Result<Domain>
where
    Wire: TryFrom<i32>,
    Domain: TryFrom<Wire, Error = Error>,
{
    let wire = Wire::try_from(number)
        .map_err(|_| newer_error(&format!("the {name} with number {number}")))?;
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
                    <$wire>::Unspecified => Err($crate::decode_error::unset_error($what)),
                    $(<$wire>::$theirs => Ok(Self::$ours),)*
                }
            }
        }
    };
}

pub(crate) use enumeration;
