//! Changes of definitions: each happens once, however often the client has to send the change.
//!
//! The writer does not number definition changes: a second `create` of a name is a conflict, even
//! if the same client sent both. A client therefore looks for a change that may have happened. An
//! alteration names its base version, so the definition of the next version shows whether the
//! alteration was applied. The client remembers each change until the outcome is known, so that the
//! same call resolves the change, also after a deadline.

use std::sync::Arc;

use forebay_core::backoff::Backoff;
use forebay_core::id::{SchemaVersion, StoreId};
use forebay_core::limits::CLIENT_UNRESOLVED_DEFINITIONS_MAX;
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::status::write_error_of_status;
use forebay_wire::v1;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tonic::{Request, Response, Status};

use crate::connection::{Connection, Rpc, definition_of};

/// A change of a definition, as a caller requests it.
#[derive(Clone, Debug, PartialEq)]
enum RequestedChange {
    Create(StoreSpec),
    Alter { name: String, from: Option<SchemaVersion>, alterations: Vec<Alteration> },
    Delete(String),
}

/// The definition that a change starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Base {
    store: StoreId,
    version: SchemaVersion,
}

/// The definition changes of one client.
pub(crate) struct DefinitionChanges {
    connection: Arc<Connection>,
    /// Changes that may have happened, the oldest first.
    unresolved: Mutex<Vec<(RequestedChange, Option<Base>)>>,
}

/// A change in progress. If the future is dropped while the change may have happened, the client
/// remembers the change.
struct DefinitionChange<'c> {
    changes: &'c DefinitionChanges,
    requested: RequestedChange,
    base: Option<Base>,
    /// Whether an attempt may have applied the change.
    may_be_done: bool,
    backoff: Backoff,
    last: Option<Error>,
}

impl Drop for DefinitionChange<'_> {
    fn drop(&mut self) {
        if self.may_be_done {
            self.changes.keep(self.requested.clone(), self.base);
        }
    }
}

/// The result of one attempt.
enum Attempt<A> {
    Done(A),
    /// The outcome is unknown: make another attempt.
    Again,
    Refused(Error),
}

impl DefinitionChanges {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, unresolved: Mutex::default() }
    }

    pub(crate) fn create<'a>(&'a self, spec: &'a StoreSpec) -> BoxFuture<'a, Result<Definition>> {
        Box::pin(async move {
            let mut change = self.start(RequestedChange::Create(spec.clone()));
            let result =
                tokio::time::timeout(self.connection.deadline(), change.create(spec)).await;
            change.end(result.ok())
        })
    }

    pub(crate) fn alter<'a>(
        &'a self,
        name: &'a str,
        from: Option<SchemaVersion>,
        alterations: &'a [Alteration],
    ) -> BoxFuture<'a, Result<Definition>> {
        Box::pin(async move {
            let (owned_name, owned) = (name.to_owned(), alterations.to_vec());
            let requested = RequestedChange::Alter { name: owned_name, from, alterations: owned };
            let mut change = self.start(requested);
            let altering = change.alter(name, from, alterations);
            let result = tokio::time::timeout(self.connection.deadline(), altering).await;
            change.end(result.ok())
        })
    }

    pub(crate) fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut change = self.start(RequestedChange::Delete(name.to_owned()));
            let result =
                tokio::time::timeout(self.connection.deadline(), change.delete(name)).await;
            change.end(result.ok())
        })
    }

    /// Starts a change, or continues the same change if an earlier call left it unresolved.
    fn start(&self, requested: RequestedChange) -> DefinitionChange<'_> {
        let remembered = self.take(&requested);
        let (base, may_be_done) = (remembered.flatten(), remembered.is_some());
        let backoff = self.connection.backoff();
        DefinitionChange { changes: self, requested, base, may_be_done, backoff, last: None }
    }

    fn take(&self, requested: &RequestedChange) -> Option<Option<Base>> {
        let mut unresolved = self.unresolved.lock();
        let index = unresolved.iter().position(|(change, _)| change == requested)?;
        Some(unresolved.remove(index).1)
    }

    fn keep(&self, requested: RequestedChange, base: Option<Base>) {
        let mut unresolved = self.unresolved.lock();
        if unresolved.len() == CLIENT_UNRESOLVED_DEFINITIONS_MAX {
            unresolved.remove(0);
        }
        unresolved.push((requested, base));
    }
}

impl DefinitionChange<'_> {
    fn connection(&self) -> &Connection {
        &self.changes.connection
    }

    async fn create(&mut self, spec: &StoreSpec) -> Result<Definition> {
        let message = v1::CreateStoreRequest { spec: Some(spec.into()) };
        loop {
            let call = async |mut rpc: Rpc, message| rpc.create_store(message).await;
            match self.attempt(message.clone(), call).await {
                Attempt::Done(v1::CreateStoreResponse { definition }) => {
                    return definition_of(definition);
                }
                Attempt::Refused(error) if self.may_be_there(&error, ErrorCode::Conflict) => {
                    let first = self.connection().describe(&spec.name, 1).await?;
                    if spec.define(first.store)? != first {
                        return Err(error);
                    }
                    return self.connection().describe(&spec.name, 0).await;
                }
                Attempt::Refused(error) => return Err(error),
                Attempt::Again => {}
            }
        }
    }

    async fn alter(
        &mut self,
        name: &str,
        from: Option<SchemaVersion>,
        alterations: &[Alteration],
    ) -> Result<Definition> {
        loop {
            let base = self.base(name, from).await?;
            let message = v1::AlterStoreRequest {
                name: name.to_owned(),
                from_version: base.version.0,
                alterations: alterations.iter().map(Into::into).collect(),
            };
            let call = async |mut rpc: Rpc, message| rpc.alter_store(message).await;
            match self.attempt(message, call).await {
                Attempt::Done(v1::AlterStoreResponse { definition }) => {
                    return definition_of(definition);
                }
                Attempt::Refused(error) if error.code() == ErrorCode::Conflict => {
                    if self.may_be_done
                        && let Some(own_definition) = self.altered(name, base, alterations).await?
                    {
                        return Ok(own_definition);
                    }
                    // Another alteration came first, so this one can no longer be appended.
                    self.may_be_done = false;
                    if from.is_some() {
                        return Err(error);
                    }
                    self.base = None;
                }
                Attempt::Refused(error) => return Err(error),
                Attempt::Again => {}
            }
        }
    }

    async fn delete(&mut self, name: &str) -> Result<()> {
        loop {
            let base = self.base(name, None).await?;
            if self.may_be_done {
                match self.connection().describe(name, 0).await {
                    // Another store has taken the name.
                    Ok(found) if found.store != base.store => return Ok(()),
                    Err(error) if error.code() == ErrorCode::NotFound => return Ok(()),
                    found => found.map(drop)?,
                }
            }
            let message = v1::DeleteStoreRequest { name: name.to_owned() };
            let call = async |mut rpc: Rpc, message| rpc.delete_store(message).await;
            match self.attempt(message, call).await {
                Attempt::Done(_) => return Ok(()),
                Attempt::Refused(error) if self.may_be_there(&error, ErrorCode::NotFound) => {
                    return Ok(());
                }
                Attempt::Refused(error) => return Err(error),
                Attempt::Again => {}
            }
        }
    }

    fn may_be_there(&self, error: &Error, code: ErrorCode) -> bool {
        self.may_be_done && error.code() == code
    }

    /// Returns the definition that the change starts from; fetches the definition once.
    async fn base(&mut self, name: &str, from: Option<SchemaVersion>) -> Result<Base> {
        if let Some(base) = self.base {
            return Ok(base);
        }
        let found = self.connection().describe(name, 0).await?;
        let base = Base { store: found.store, version: from.unwrap_or(found.version) };
        self.base = Some(base);
        Ok(base)
    }

    /// Returns the version after the base, if that version is the result of these alterations of
    /// the base.
    async fn altered(
        &self,
        name: &str,
        base: Base,
        alterations: &[Alteration],
    ) -> Result<Option<Definition>> {
        let before = self.connection().describe(name, base.version.0).await?;
        let after = self.connection().describe(name, base.version.0 + 1).await?;
        let is_same_store = before.store == base.store && after.store == base.store;
        let own_definition = before.altered(alterations).ok();
        Ok(own_definition.filter(|own_definition| is_same_store && *own_definition == after))
    }

    /// Makes one attempt; waits a little if the outcome is unknown.
    async fn attempt<Q, A>(
        &mut self,
        message: Q,
        call: impl AsyncFn(Rpc, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Attempt<A> {
        let may_be_done = std::mem::replace(&mut self.may_be_done, true);
        let answer = call(self.connection().rpc(), self.connection().request(message));
        let error = match self.connection().within_attempt(answer).await {
            Ok(Ok(response)) => {
                self.may_be_done = false;
                return Attempt::Done(response.into_inner());
            }
            Ok(Err(status)) => {
                let error = write_error_of_status(&status);
                // A status without details comes from the transport: the call never left. A writer
                // may have become unavailable after its append.
                let never_left =
                    error.code() == ErrorCode::Unavailable && status.details().is_empty();
                self.may_be_done = may_be_done || !never_left;
                error
            }
            Err(error) => error,
        };
        if !matches!(error.code(), ErrorCode::Unavailable | ErrorCode::UnknownOutcome) {
            self.may_be_done = may_be_done;
            return Attempt::Refused(error);
        }
        self.last = Some(error);
        let wait = self.backoff.next_wait(self.changes.connection.entropy());
        tokio::time::sleep(wait).await;
        Attempt::Again
    }

    /// Returns the caller's result; `result` is `None` at the deadline.
    fn end<T>(mut self, result: Option<Result<T>>) -> Result<T> {
        let last = self.last.take();
        match result {
            Some(result) => {
                // A description that failed resolves nothing.
                let is_resolved = !result.as_ref().is_err_and(|error| error.code().is_retryable());
                self.may_be_done &= !is_resolved;
                result
            }
            None if self.may_be_done => {
                let cause = last.map_or("no answer yet".to_owned(), |error| error.to_string());
                let message = format!(
                    "the call may have taken effect; repeat the call with this client for a \
                     definite result ({cause})"
                );
                Err(Error::unknown_outcome(message))
            }
            None => Err(self.connection().no_answer(last)),
        }
    }
}
