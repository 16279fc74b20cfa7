//! Why a message is refused: it lacks something that every build sends, or it holds something that
//! only a newer build knows. The two must not be mixed up (see `proto/spec/entry.md`).

use forebay_core::{Error, Result};

/// Something that every build sends is not there.
pub(crate) fn unset(what: &str) -> Error {
    Error::invalid_argument(format!("the message lacks {what}; set it"))
}

/// A `oneof` without a member that this build knows, or an enum with another number.
pub(crate) fn newer(what: &str) -> Error {
    Error::upgrade_needed(format!("this build does not know {what}; upgrade this process"))
}

/// The domain's word for the number of a wire enum.
///
/// # Errors
/// `InvalidArgument` for 0, which no build means; `UpgradeNeeded` for a number that is not known.
pub(crate) fn from_number<Wire, Domain>(number: i32, what: &str) -> Result<Domain>
where
    Wire: TryFrom<i32>,
    Domain: TryFrom<Wire, Error = Error>,
{
    let wire =
        Wire::try_from(number).map_err(|_| newer(&format!("the {what} with number {number}")))?;
    Domain::try_from(wire)
}

/// Conversions both ways between an enum of the domain and one of the wire.
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
                    <$wire>::Unspecified => Err($crate::refusal::unset($what)),
                    $(<$wire>::$theirs => Ok(Self::$ours),)*
                }
            }
        }
    };
}

pub(crate) use enumeration;
