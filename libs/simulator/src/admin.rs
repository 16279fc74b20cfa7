//! The administrator: an application that adds a field to the live store, writes the field, and
//! drops it, while all others continue.

use forebay::Store;
use forebay::schema::{Alteration, FieldSpec, FieldType};
use forebay::writes::WriteResult;

use super::acknowledgement::{ATTEMPTS_MAX, RETRY_WAIT};
use super::expected_state::Fields;
use super::store::{PASSING, STORE};
use super::workload::{Application, KEYS, lock};

impl Application {
    /// Executes this many operations of an administrator.
    ///
    /// # Errors
    /// Returns the broken rule.
    pub(crate) async fn administer(mut self, operations: usize) -> Result<(), String> {
        let store = self.open_store(self.client()).await?;
        let mut operations_made = 0;
        while operations_made < operations {
            self.alter(&store, true).await?;
            for number in 0..KEYS {
                self.pause().await;
                self.write_passing(&store, self.own_key(number), true).await?;
            }
            for number in 0..KEYS {
                let key = self.own_key(number);
                let present = lock(&self.shared.expected).key(key).newest();
                let fields_without = present.map(|fields| Fields { passing: None, ..fields });
                self.shared.begin(key, fields_without, None);
            }
            self.alter(&store, false).await?;
            let now = self.shared.world.moment();
            for number in 0..KEYS {
                lock(&self.shared.expected).key(self.own_key(number)).acknowledge(now);
            }
            self.count_event("field added and dropped");
            for number in 0..KEYS {
                self.pause().await;
                self.write_passing(&store, self.own_key(number), false).await?;
            }
            operations_made += 2 + 2 * KEYS as usize;
        }
        Ok(())
    }

    /// Writes a document with or without the passing field, and reads it back.
    async fn write_passing(
        &mut self,
        store: &Store,
        key: i64,
        is_present: bool,
    ) -> Result<(), String> {
        let revision = self.next_revision();
        let present = lock(&self.shared.expected).key(key).newest().unwrap_or_default();
        let write = store.upsert(key).set("revision", revision);
        let (write, passing) = match is_present {
            true => (write.set(PASSING, revision), Some(revision)),
            false => (write, None),
        };
        let next = Some(Fields { revision, passing, ..present });
        let token = self.write(key, write, next, None, WriteResult::Appended).await?;
        self.read_newest(key, &token).await
    }

    /// Alters the store until the field is present or absent, as wanted.
    async fn alter(&self, store: &Store, is_wanted: bool) -> Result<(), String> {
        let alteration = match is_wanted {
            true => Alteration::AddField(FieldSpec::new(PASSING, FieldType::INT64)),
            false => Alteration::DropField(PASSING.to_owned()),
        };
        self.note(&format!("alters the store: {alteration:?}"));
        for _ in 0..ATTEMPTS_MAX {
            // Only the definition shows whether an attempt succeeded.
            if let Err(error) =
                self.client().alter_store(STORE, None, std::slice::from_ref(&alteration)).await
            {
                self.note(&format!("is not altered: {:?}", error.code()));
                self.count_event("alteration not certain");
            }
            let definition = store.refresh().await;
            if definition.is_ok_and(|now| now.field(PASSING).is_some() == is_wanted) {
                return Ok(());
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
        Err("an alteration never happened".to_owned())
    }
}
