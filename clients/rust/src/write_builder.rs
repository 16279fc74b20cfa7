//! A write, built field by field and then sent.

use std::fmt;
use std::time::Duration;

use forebay_core::change::FieldOp;
use forebay_core::id::DocumentVersion;
use forebay_core::value::Value;

use crate::change_spec::{ChangeSpec, ConditionSpec, ttl_us};
use crate::outcome::WriteOutcome;
use crate::pending_write::WriteError;
use crate::store_backend::StoreBackend;

/// A write that is not sent yet. Nothing is validated before the write is sent.
///
/// ```no_run
/// use std::time::Duration;
/// use forebay::Store;
/// use forebay::writes::WriteResult;
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
/// if written.result == WriteResult::ConditionFailed(None) {
///     println!("somebody else was first");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a write does nothing before it is sent"]
pub struct Write {
    backend: StoreBackend,
    spec: ChangeSpec,
    deadline: Duration,
}

impl Write {
    pub(crate) fn new(backend: StoreBackend, spec: ChangeSpec) -> Self {
        let deadline = backend.deadline();
        Self { backend, spec, deadline }
    }

    pub(crate) fn backend(&self) -> &StoreBackend {
        &self.backend
    }

    pub(crate) fn into_spec(self) -> ChangeSpec {
        self.spec
    }

    /// Sets a field. The value is converted to the field's declared type if the conversion is
    /// exact.
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

    /// Adds to a number. Absent and null count as 0, and integers saturate at their bounds.
    pub fn increment(self, field: &str, amount: impl Into<Value>) -> Self {
        self.field(field, FieldOp::Increment(amount.into()))
    }

    /// Keeps the smaller of the field's value and this one.
    pub fn min(self, field: &str, value: impl Into<Value>) -> Self {
        self.field(field, FieldOp::Min(value.into()))
    }

    /// Keeps the larger of the field's value and this one.
    pub fn max(self, field: &str, value: impl Into<Value>) -> Self {
        self.field(field, FieldOp::Max(value.into()))
    }

    /// Appends components to a list; the last `bound` components stay.
    pub fn list_append<V: Into<Value>>(
        self,
        field: &str,
        items: impl IntoIterator<Item = V>,
        bound: u32,
    ) -> Self {
        let items = items.into_iter().map(Into::into).collect();
        self.field(field, FieldOp::ListAppend { items, bound })
    }

    /// Adds the components that a list does not contain yet; the last `bound` components stay.
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

    /// Sets the time to live of a field that this write changes, in whole microseconds.
    pub fn field_ttl(mut self, field: &str, ttl: Duration) -> Self {
        self.spec.field_ttls.push((field.to_owned(), ttl_us(ttl)));
        self
    }

    /// Sets the document's time to live, counted from this write, in whole microseconds. If no time
    /// to live is set, a put takes the store's, and an upsert keeps the document's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.spec.ttl_us = Some(ttl_us(ttl));
        self
    }

    /// Applies the write only if there is no document under the key.
    pub fn if_absent(self) -> Self {
        self.condition(ConditionSpec::Absent)
    }

    /// Applies the write only if the document has exactly this version; the store must be
    /// `versioned`.
    pub fn if_version(self, version: DocumentVersion) -> Self {
        self.condition(ConditionSpec::Version(version))
    }

    /// Applies the write only if the value that it sets the field to is greater than the field's
    /// current value.
    pub fn if_newer(self, field: &str) -> Self {
        self.condition(ConditionSpec::Newer(field.to_owned()))
    }

    /// Sets the deadline of this write, retries included; the client's deadline unless set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sends the write, and retries until its outcome is known.
    ///
    /// Two writes of one client keep their order only if the second is sent after the first has
    /// returned, or if both go through one [`WriteStream`](crate::writes::WriteStream).
    ///
    /// # Errors
    /// - `NotFound`, `InvalidArgument` or `LimitExceeded`: the write is invalid; nothing was
    ///   written.
    /// - `LimitExceeded`: the writer applies back-pressure; send more slowly.
    /// - `UnknownOutcome`: the deadline passed and the outcome is unknown. The error holds the
    ///   write, to retry it.
    /// - `Unavailable` or `DeadlineExceeded`: the deadline passed and nothing was written. The
    ///   error holds the write, to retry it.
    pub async fn send(self) -> Result<WriteOutcome, WriteError> {
        let outcome = self.backend.write(vec![self.spec], self.deadline).await?;
        Ok(outcome.into_single()?)
    }

    fn field(mut self, field: &str, op: FieldOp) -> Self {
        self.spec.fields.push((field.to_owned(), op));
        self
    }

    fn condition(mut self, condition: ConditionSpec) -> Self {
        self.spec.conditions.push(condition);
        self
    }
}

/// The output never contains a key or a value.
impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write")
            .field("store", &self.backend.name())
            .field("verb", &self.spec.verb)
            .field("fields", &self.spec.fields.len())
            .finish_non_exhaustive()
    }
}
