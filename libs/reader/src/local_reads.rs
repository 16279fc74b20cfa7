//! Reads of single values: directly from the reader, or from a view for several reads.
//!
//! A direct read costs what [`Reader::read_local`] costs. The closure of that method is for
//! borrowed rows and for batches.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::row::{Document, Presence};
use forebay_core::value::Value;
use forebay_index::{CopyOut, DocumentKey, FieldHandle, FieldRead, FieldScalar, View};

use crate::followed_version::FollowedVersion;
use crate::reader::Reader;

/// A view of a reader for several reads: all answer from the store version that was live when the
/// view was opened, and all obey the view's staleness bound.
///
/// A view is no snapshot: each read finds the newest document, whole. Keep a view for one call of a
/// program, not longer: it keeps the memory of a replaced store version.
pub struct ReaderView<'r> {
    version: Guard<Arc<FollowedVersion>>,
    max_staleness: Option<Duration>,
    reader: PhantomData<&'r Reader>,
}

impl ReaderView<'_> {
    /// Refuses data older than `bound` with `Stale`. The bound must be at least twice the store's
    /// heartbeat interval.
    #[must_use]
    pub fn max_staleness(mut self, bound: Duration) -> Self {
        self.max_staleness = Some(bound);
        self
    }

    #[inline]
    fn with_view<T>(&self, visit: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        self.version.read_local(self.max_staleness, visit)
    }
}

impl fmt::Debug for ReaderView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderView")
            .field("max_staleness", &self.max_staleness)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens a view of the data that is applied here, for several reads. The view waits for nothing
    /// and takes no lock.
    ///
    /// # Errors
    /// Returns `Closed`.
    pub fn view(&self) -> Result<ReaderView<'_>> {
        Ok(ReaderView { version: self.open_version()?, max_staleness: None, reader: PhantomData })
    }

    #[inline]
    fn with_view<T>(&self, visit: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        self.read_local(None, visit)
    }
}

/// Implements the reads of single values for one type.
macro_rules! single_reads {
    ($type:ty) => {
        impl $type {
            /// Returns the whole document as this process has it now, or `None`. Every field is
            /// copied, so read single fields through a handle.
            ///
            /// # Errors
            /// Returns the errors of [`Reader::read_local`].
            pub fn get_document<'k>(
                &self,
                key: impl Into<DocumentKey<'k>>,
            ) -> Result<Option<Document>> {
                self.with_view(|view| view.get_document(key))
            }

            /// Returns whether the field of a document is absent, null or a value.
            ///
            /// # Errors
            /// Returns the errors of [`Reader::read_local`] and [`View::presence`].
            pub fn presence<'k>(
                &self,
                handle: &FieldHandle,
                key: impl Into<DocumentKey<'k>>,
            ) -> Result<Presence> {
                self.with_view(|view| view.presence(handle, key))
            }

            /// Reads a number, bool or timestamp, without a default.
            ///
            /// # Errors
            /// Returns the errors of [`Reader::read_local`] and [`View::get_scalar`].
            #[inline]
            pub fn get_scalar<'k, T: FieldScalar>(
                &self,
                handle: &FieldHandle,
                key: impl Into<DocumentKey<'k>>,
            ) -> Result<FieldRead<T>> {
                self.with_view(|view| view.get_scalar(handle, key))
            }

            /// Copies a string into a buffer, if the buffer is large enough.
            ///
            /// # Errors
            /// Returns the errors of [`Reader::read_local`] and [`View::get_str`].
            pub fn get_str<'k>(
                &self,
                handle: &FieldHandle,
                key: impl Into<DocumentKey<'k>>,
                buffer: &mut [u8],
            ) -> Result<CopyOut> {
                self.with_view(|view| view.get_str(handle, key, buffer))
            }

            /// Copies bytes into a buffer, if the buffer is large enough.
            ///
            /// # Errors
            /// Returns the errors of [`Reader::read_local`] and [`View::get_bytes`].
            pub fn get_bytes<'k>(
                &self,
                handle: &FieldHandle,
                key: impl Into<DocumentKey<'k>>,
                buffer: &mut [u8],
            ) -> Result<CopyOut> {
                self.with_view(|view| view.get_bytes(handle, key, buffer))
            }

            /// Reads a string.
            ///
            /// # Errors
            /// Returns the errors of [`Reader::read_local`] and [`View::get_str_owned`].
            pub fn get_str_owned<'k>(
                &self,
                handle: &FieldHandle,
                key: impl Into<DocumentKey<'k>>,
            ) -> Result<FieldRead<String>> {
                self.with_view(|view| view.get_str_owned(handle, key))
            }

            /// Reads bytes.
            ///
            /// # Errors
            /// Returns the errors of [`Reader::read_local`] and [`View::get_bytes_owned`].
            pub fn get_bytes_owned<'k>(
                &self,
                handle: &FieldHandle,
                key: impl Into<DocumentKey<'k>>,
            ) -> Result<FieldRead<Vec<u8>>> {
                self.with_view(|view| view.get_bytes_owned(handle, key))
            }

            /// Reads a value of any type.
            ///
            /// # Errors
            /// Returns the errors of [`Reader::read_local`] and [`View::get_value`].
            pub fn get_value<'k>(
                &self,
                handle: &FieldHandle,
                key: impl Into<DocumentKey<'k>>,
            ) -> Result<FieldRead<Value>> {
                self.with_view(|view| view.get_value(handle, key))
            }
        }

        scalar_reads! { $type;
            get_bool(bool), "a bool";
            get_i32(i32), "an int32";
            get_i64(i64), "an int64";
            get_f32(f32), "a float32";
            get_f64(f64), "a float64";
            get_timestamp(Timestamp), "a timestamp";
        }
    };
}

macro_rules! scalar_reads {
    ($type:ty; $($name:ident($scalar:ty), $what:literal;)*) => {
        impl $type {
            $(
                #[doc = concat!("Reads ", $what, "; `default` if the field is absent or null.")]
                ///
                /// # Errors
                /// Returns the errors of [`Reader::read_local`] and [`View::get_scalar`].
                #[inline]
                pub fn $name<'k>(
                    &self,
                    handle: &FieldHandle,
                    key: impl Into<DocumentKey<'k>>,
                    default: $scalar,
                ) -> Result<$scalar> {
                    self.with_view(|view| view.$name(handle, key, default))
                }
            )*
        }
    };
}

single_reads!(Reader);
single_reads!(ReaderView<'_>);
