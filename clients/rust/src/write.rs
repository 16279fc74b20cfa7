//! One write, said field by field and then sent.

use std::fmt;
use std::time::Duration;

use forebay_core::change::FieldOp;
use forebay_core::id::DocumentVersion;
use forebay_core::value::Value;

use crate::draft::{Draft, GivenCondition, ttl_us};
use crate::outcome::{WriteError, WriteOutcome};
use crate::pending::send;
use crate::store::Store;

/// A write that is not sent yet. Nothing is checked before it is sent.
///
/// ```no_run
/// use std::time::Duration;
/// use forebay::{Store, WriteResult};
/// # async fn example(users: Store) -> forebay::Result<()> {
/// let written = users
///     .upsert("u1")
///     .set("name", "Ada")
///     .increment("visits", 1)
///     .list_append("recent", [7, 9], 100)
///     .ttl(Duration::from_secs(3600))
///     .if_absent()
///     .send()
///     .await?;
/// if written.result == WriteResult::NotMet(None) {
///     println!("somebody else was first");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a write does nothing before it is sent"]
pub struct Write {
    store: Store,
    draft: Draft,
    deadline: Duration,
}

impl Write {
    pub(crate) fn new(store: Store, draft: Draft) -> Self {
        let deadline = store.deadline();
        Self { store, draft, deadline }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn into_draft(self) -> Draft {
        self.draft
    }

    /// Sets a field. The value becomes the field's declared type, where that loses nothing.
    pub fn set(self, field: &str, value: impl Into<Value>) -> Self {
        self.field(field, FieldOp::Set(Some(value.into())))
    }

    /// Sets a field to null, which is not the same as absent.
    pub fn set_null(self, field: &str) -> Self {
        self.field(field, FieldOp::Set(None))
    }

    /// Makes a field absent.
    pub fn remove_field(self, field: &str) -> Self {
        self.field(field, FieldOp::Remove)
    }

    /// Adds to a number; absent and null count as 0, and integers stop at their bounds.
    pub fn increment(self, field: &str, by: impl Into<Value>) -> Self {
        self.field(field, FieldOp::Increment(by.into()))
    }

    /// Keeps the smaller of the field's value and this one.
    pub fn min(self, field: &str, value: impl Into<Value>) -> Self {
        self.field(field, FieldOp::Min(value.into()))
    }

    /// Keeps the larger of the field's value and this one.
    pub fn max(self, field: &str, value: impl Into<Value>) -> Self {
        self.field(field, FieldOp::Max(value.into()))
    }

    /// Appends components to a list; the last `bound` of them stay.
    pub fn list_append<V: Into<Value>>(
        self,
        field: &str,
        items: impl IntoIterator<Item = V>,
        bound: u32,
    ) -> Self {
        let items = items.into_iter().map(Into::into).collect();
        self.field(field, FieldOp::ListAppend { items, bound })
    }

    /// Adds the components that a list does not hold yet; the last `bound` of them stay.
    pub fn set_add<V: Into<Value>>(
        self,
        field: &str,
        items: impl IntoIterator<Item = V>,
        bound: u32,
    ) -> Self {
        let items = items.into_iter().map(Into::into).collect();
        self.field(field, FieldOp::SetAdd { items, bound })
    }

    /// Removes components from a list.
    pub fn set_remove<V: Into<Value>>(
        self,
        field: &str,
        items: impl IntoIterator<Item = V>,
    ) -> Self {
        let items = items.into_iter().map(Into::into).collect();
        self.field(field, FieldOp::SetRemove { items })
    }

    /// Gives a field that this write changes a time to live of its own, in whole microseconds.
    pub fn field_ttl(mut self, field: &str, ttl: Duration) -> Self {
        self.draft.field_ttls.push((field.to_owned(), ttl_us(ttl)));
        self
    }

    /// Gives the document a time to live from this write on, in whole microseconds. Without it a
    /// put takes the store's, and an upsert keeps what the document has.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.draft.ttl_us = Some(ttl_us(ttl));
        self
    }

    /// Happens only if there is no document under the key.
    pub fn if_absent(self) -> Self {
        self.condition(GivenCondition::Absent)
    }

    /// Happens only if the document has exactly this version; the store must be `versioned`.
    pub fn if_version(self, version: DocumentVersion) -> Self {
        self.condition(GivenCondition::Version(version))
    }

    /// Happens only if the value that this write sets the field to is above the one that it holds.
    pub fn if_newer(self, field: &str) -> Self {
        self.condition(GivenCondition::Newer(field.to_owned()))
    }

    /// Time that this write has, its retries included, instead of the client's.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sends the write, again where needed, until what became of it is known.
    ///
    /// Two writes of one client keep their order only if the second is sent after the first has
    /// answered, or if both go through one [`WriteStream`](crate::WriteStream).
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` or `LimitExceeded` for what cannot be, with nothing written.
    /// `LimitExceeded` when the writer pushes back: slow down. At the deadline `UnknownOutcome`, or
    /// `Unavailable` or `DeadlineExceeded` when nothing was written; with the write, to retry it.
    pub async fn send(self) -> Result<WriteOutcome, WriteError> {
        let outcome = send(self.store, vec![self.draft], self.deadline).await?;
        Ok(outcome.into_single()?)
    }

    fn field(mut self, field: &str, op: FieldOp) -> Self {
        self.draft.fields.push((field.to_owned(), op));
        self
    }

    fn condition(mut self, condition: GivenCondition) -> Self {
        self.draft.conditions.push(condition);
        self
    }
}

/// Never shows a key or a value.
impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write")
            .field("store", &self.store)
            .field("verb", &self.draft.verb)
            .field("fields", &self.draft.fields.len())
            .finish_non_exhaustive()
    }
}
