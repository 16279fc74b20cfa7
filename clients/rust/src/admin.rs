//! Administration: create, alter, delete, describe and list stores.

use forebay_core::Result;
use forebay_core::id::SchemaVersion;
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_wire::v1;

use crate::client::Client;
use crate::store::Store;

impl Client {
    /// Creates a store and opens it.
    ///
    /// ```no_run
    /// use forebay::{Client, FieldType, KeyType, ScalarType, StoreSpec};
    /// # async fn example(client: Client) -> forebay::Result<()> {
    /// let spec = StoreSpec::documents("users", KeyType::String, 8)
    ///     .field("age", FieldType::Scalar(ScalarType::Int64));
    /// let users = client.create_store(&spec).await?;
    /// assert_eq!(users.definition().version.0, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Conflict` when the name is taken, `InvalidArgument` or `LimitExceeded` for a store that
    /// cannot be, `UnknownOutcome` at the deadline when it may have happened: the same call with
    /// the same client settles it, and answers the store that the first one made.
    pub async fn create_store(&self, spec: &StoreSpec) -> Result<Store> {
        let definition = self.inner().create(spec).await?;
        Ok(Store::new(self.inner().state(definition)))
    }

    /// Gives a store its next version; all alterations happen, or none.
    ///
    /// `from` is the version that the caller has seen: another writer's alteration in between is a
    /// `Conflict`. `None` alters whatever is there when the call begins or another one came first.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` with the reason why old data would become unreadable,
    /// `Conflict` with both versions, `UnknownOutcome` at the deadline when it may have happened:
    /// the same call with the same client settles it, and alters nothing twice.
    pub async fn alter_store(
        &self,
        name: &str,
        from: Option<SchemaVersion>,
        alterations: &[Alteration],
    ) -> Result<Definition> {
        let definition = self.inner().alter(name, from, alterations).await?;
        // Open handles of this client see it at once.
        self.inner().state(definition.clone());
        Ok(definition)
    }

    /// Deletes a store and all its data. Its name is free again; handles to it answer `NotFound`.
    ///
    /// # Errors
    /// `NotFound`, or `UnknownOutcome` at the deadline when it may have happened: the same call
    /// with the same client settles it.
    pub async fn delete_store(&self, name: &str) -> Result<()> {
        self.inner().delete(name).await
    }

    /// The definition of a store; `None` is the newest version.
    ///
    /// # Errors
    /// `NotFound`, naming store and version.
    pub async fn describe_store(
        &self,
        name: &str,
        version: Option<SchemaVersion>,
    ) -> Result<Definition> {
        self.inner().describe(name, version.map_or(0, |version| version.0)).await
    }

    /// The newest definitions of all stores, by name.
    ///
    /// # Errors
    /// `Unavailable` when the writer does not answer in time.
    pub async fn list_stores(&self) -> Result<Vec<Definition>> {
        let call = async |mut rpc: crate::Rpc, message| rpc.list_stores(message).await;
        let listed: v1::ListStoresResponse =
            self.inner().read(v1::ListStoresRequest {}, call).await?;
        listed.definitions.into_iter().map(TryInto::try_into).collect()
    }
}
