//! Administration: create, alter, delete, describe and list stores.

use forebay_core::Result;
use forebay_core::id::SchemaVersion;
use forebay_core::schema::{Alteration, Definition, StoreSpec};

use crate::client::Client;
use crate::store::Store;

impl Client {
    /// Creates a store and opens it.
    ///
    /// ```no_run
    /// use forebay::Client;
    /// use forebay::schema::{FieldType, KeyType, StoreSpec};
    /// # async fn example(client: Client) -> forebay::Result<()> {
    /// let spec = StoreSpec::documents("users", KeyType::String)
    ///     .partitions(8)
    ///     .field("age", FieldType::INT64);
    /// let users = client.create_store(&spec).await?;
    /// assert_eq!(users.definition().version.0, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - `Conflict`: the name is taken.
    /// - `InvalidArgument` or `LimitExceeded`: the specification is invalid.
    /// - `UnknownOutcome`: the deadline passed and the store may exist. The same call with the same
    ///   client resolves the creation, and returns the store that the first call created.
    pub async fn create_store(&self, spec: &StoreSpec) -> Result<Store> {
        let definition = self.definition_changes().create(spec).await?;
        Ok(Store::new(self.store_state(definition)))
    }

    /// Alters a store, which gives the store its next version. All alterations happen, or none.
    ///
    /// `from_version` is the version that the caller has seen: if another client has altered the
    /// store since, the call is a `Conflict`. `None` alters the newest version, at the beginning of
    /// the call and again after a concurrent alteration.
    ///
    /// # Errors
    /// - `NotFound`: no store has this name.
    /// - `InvalidArgument`: the alteration would make old data unreadable; the message says why.
    /// - `Conflict`: the store has another version than `from_version`; the message names both
    ///   versions.
    /// - `UnknownOutcome`: the deadline passed and the alteration may have happened. The same call
    ///   with the same client resolves the alteration, and alters nothing twice.
    pub async fn alter_store(
        &self,
        name: &str,
        from_version: Option<SchemaVersion>,
        alterations: &[Alteration],
    ) -> Result<Definition> {
        let definition = self.definition_changes().alter(name, from_version, alterations).await?;
        // Open handles of this client see the new definition at once.
        self.store_state(definition.clone());
        Ok(definition)
    }

    /// Deletes a store and all its data. The name is free afterwards; handles to the store return
    /// `NotFound`.
    ///
    /// # Errors
    /// - `NotFound`: no store has this name.
    /// - `UnknownOutcome`: the deadline passed and the deletion may have happened. The same call
    ///   with the same client resolves the deletion.
    pub async fn delete_store(&self, name: &str) -> Result<()> {
        self.definition_changes().delete(name).await
    }

    /// Returns the definition of a store; for a `version` of `None`, the newest definition.
    ///
    /// # Errors
    /// `NotFound`, with the store and the version in the message.
    pub async fn describe_store(
        &self,
        name: &str,
        version: Option<SchemaVersion>,
    ) -> Result<Definition> {
        self.connection().describe(name, version.map_or(0, |version| version.0)).await
    }

    /// Returns the newest definition of each store, sorted by name.
    ///
    /// # Errors
    /// `Unavailable` if the writer does not answer before the deadline.
    pub async fn list_stores(&self) -> Result<Vec<Definition>> {
        self.connection().list().await
    }
}
