//! Clients and stores: connect, create, open, alter, delete, describe, list.

use std::sync::Arc;
use std::time::Duration;

use forebay::schema::{
    Alteration, ColumnRules, FieldSpec, SchemaVersion, StoreOptions, StoreSpec, StreamSpec,
};
use forebay::{Client, ClientOptions, Error, Result, Store};

use crate::abi::{
    FbAlteration, FbBytes, FbError, FbFieldSpec, FbStoreOptions, FbStoreSpec, FbText,
};
use crate::error::ffi_call;
use crate::handles::{OpenClient, OpenStore};
use crate::input::{column_index_of, field_type_of, key_type_of, one, put, slice};
use crate::output::Packer;
use crate::process::{wait, wait_here};
use crate::registry::{self, Object};

fn insert_store(client: &OpenClient, store: Store) -> Result<u64> {
    registry::insert(Object::Store(OpenStore::new(client, store)))
}

/// Connects a client.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_client_connect(
    endpoint: FbText,
    deadline_ms: u64,
    client: *mut u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let mut options = ClientOptions::default();
        if deadline_ms > 0 {
            options.deadline = Duration::from_millis(deadline_ms);
            options.attempt = options.attempt.min(options.deadline);
        }
        // SAFETY: the caller follows the header's rules.
        let endpoint = unsafe { endpoint.text()? };
        let deadline = options.deadline;
        let client_made = wait(Client::connect(endpoint, options))??;
        let (is_closed, in_flight) = (Arc::default(), Arc::default());
        let open = OpenClient { client: client_made, is_closed, deadline, in_flight };
        let id = registry::insert(Object::Client(open))?;
        // SAFETY: as above.
        unsafe { put(client, id) };
        Ok(())
    })
}

/// Opens a store.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_open(
    client: u64,
    name: FbText,
    store: *mut u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(client)?;
        let client = open.client()?;
        // SAFETY: the caller follows the header's rules.
        let name = unsafe { name.text()? };
        let id = insert_store(client, wait(client.client.store(name))??)?;
        // SAFETY: as above.
        unsafe { put(store, id) };
        Ok(())
    })
}

/// Creates a store and opens it.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_create(
    client: u64,
    spec: *const FbStoreSpec,
    store: *mut u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(client)?;
        let client = open.client()?;
        // SAFETY: the caller follows the header's rules.
        let spec = unsafe { one(spec)?.spec()? };
        let id = insert_store(client, wait(client.client.create_store(&spec))??)?;
        // SAFETY: as above.
        unsafe { put(store, id) };
        Ok(())
    })
}

/// Returns the definition of an open store as its client has last seen it, packed.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_definition(
    store: u64,
    definition: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(store)?;
        let mut packer = Packer::default();
        packer.definition(&open.store()?.store()?.definition());
        // SAFETY: the caller follows the header's rules.
        unsafe { put(definition, packer.finish()) };
        Ok(())
    })
}

/// Fetches the newest definition of an open store from the writer, and returns it packed.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_refresh(
    store: u64,
    definition: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(store)?;
        let store = open.store()?.store()?;
        let refreshed =
            if store.is_in_memory() { wait_here(store.refresh())? } else { wait(store.refresh())? };
        let refreshed = refreshed?;
        let mut packer = Packer::default();
        packer.definition(&refreshed);
        // SAFETY: the caller follows the header's rules.
        unsafe { put(definition, packer.finish()) };
        Ok(())
    })
}

/// Alters a store, which gives the store its next version.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_alter(
    client: u64,
    name: FbText,
    from_version: u32,
    alterations: *const FbAlteration,
    alteration_count: u64,
    definition: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(client)?;
        // SAFETY: the caller follows the header's rules.
        let (name, alterations) = unsafe {
            let requested = slice(alterations, alteration_count)?;
            let alterations = requested.iter().map(|alteration| alteration.alteration());
            (name.text()?, alterations.collect::<Result<Vec<_>>>()?)
        };
        let from = (from_version > 0).then_some(SchemaVersion(from_version));
        let altered = wait(open.client()?.client.alter_store(name, from, &alterations))??;
        let mut packer = Packer::default();
        packer.definition(&altered);
        // SAFETY: as above.
        unsafe { put(definition, packer.finish()) };
        Ok(())
    })
}

/// Deletes a store and all its data.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_delete(client: u64, name: FbText, error: *mut FbError) -> i32 {
    ffi_call(error, || {
        let open = registry::open(client)?;
        // SAFETY: the caller follows the header's rules.
        let name = unsafe { name.text()? };
        Ok(wait(open.client()?.client.delete_store(name))??)
    })
}

/// Returns the definition of a store at a version, 0 for the newest, packed.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_describe(
    client: u64,
    name: FbText,
    version: u32,
    definition: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(client)?;
        // SAFETY: the caller follows the header's rules.
        let name = unsafe { name.text()? };
        let version = (version > 0).then_some(SchemaVersion(version));
        let described = wait(open.client()?.client.describe_store(name, version))??;
        let mut packer = Packer::default();
        packer.definition(&described);
        // SAFETY: as above.
        unsafe { put(definition, packer.finish()) };
        Ok(())
    })
}

/// Returns the newest definitions of all stores: their number u32, and each packed.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_store_list(
    client: u64,
    definitions: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(client)?;
        let listed = wait(open.client()?.client.list_stores())??;
        let mut packer = Packer::default();
        packer.u32(listed.len() as u32);
        listed.iter().for_each(|definition| packer.definition(definition));
        // SAFETY: the caller follows the header's rules.
        unsafe { put(definitions, packer.finish()) };
        Ok(())
    })
}

impl FbFieldSpec {
    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    unsafe fn spec(&self) -> Result<FieldSpec> {
        // SAFETY: the caller vouches for it.
        let (name, default) = unsafe { (self.name.text()?, self.fallback.value()?) };
        let at_field = |error: Error| error.with_field(name);
        let field_type = field_type_of(self.field_type).map_err(at_field)?;
        let ttl_us = (self.ttl_us >= 0).then_some(self.ttl_us);
        // SAFETY: as above.
        let rules = unsafe { self.rules().map_err(at_field)? };
        Ok(FieldSpec { name: name.to_owned(), field_type, default, ttl_us, rules })
    }

    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    unsafe fn rules(&self) -> Result<ColumnRules> {
        let null = || {
            Error::invalid_argument(
                "an allowed value is missing; give a value: a stream never refuses null",
            )
        };
        // SAFETY: the caller vouches for it.
        let allowed = unsafe { slice(self.allowed, self.allowed_count)? }.iter().map(|value| {
            // SAFETY: as above.
            unsafe { value.value()? }.ok_or_else(null)
        });
        let allowed = allowed.collect::<Result<_>>()?;
        Ok(ColumnRules {
            required: self.required != 0,
            allowed,
            index: column_index_of(self.index)?,
        })
    }
}

impl FbStoreOptions {
    fn options(&self) -> StoreOptions {
        let mut options = StoreOptions {
            ttl_us: (self.ttl_us >= 0).then_some(self.ttl_us),
            versioned: self.versioned != 0,
            log_retention_us: (self.log_retention_us >= 0).then_some(self.log_retention_us),
            log_retention_bytes: (self.log_retention_bytes > 0).then_some(self.log_retention_bytes),
            ..StoreOptions::default()
        };
        if self.heartbeat_ms > 0 {
            options.heartbeat_ms = self.heartbeat_ms;
        }
        options
    }
}

impl FbStoreSpec {
    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    pub(crate) unsafe fn spec(&self) -> Result<StoreSpec> {
        let key_type = key_type_of(self.key_type)?;
        // SAFETY: the caller vouches for it.
        let (name, partition_key, event_time, fields) = unsafe {
            let fields = slice(self.fields, self.field_count)?.iter().map(|field| field.spec());
            let fields = fields.collect::<Result<Vec<_>>>()?;
            (self.name.text()?, self.partition_key.text()?, self.event_time.text()?, fields)
        };
        let mut spec = match self.key_value {
            0 => StoreSpec::documents(name, key_type).partitions(self.partitions),
            _ => StoreSpec::key_value(name, key_type).partitions(self.partitions),
        };
        if self.stream != 0 {
            let event_time = (!event_time.is_empty()).then(|| event_time.to_owned());
            spec.stream = Some(StreamSpec { event_time });
        } else if !event_time.is_empty() {
            return Err(Error::invalid_argument(
                "the event time is of a store that is no stream; leave the event time out",
            ));
        }
        spec.fields.extend(fields);
        spec.partition_key = (!partition_key.is_empty()).then(|| partition_key.to_owned());
        spec.options = self.options.options();
        Ok(spec)
    }
}

impl FbAlteration {
    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    pub(crate) unsafe fn alteration(&self) -> Result<Alteration> {
        // SAFETY: the caller vouches for it.
        unsafe {
            let name = || Ok::<_, Error>(self.field.name.text()?.to_owned());
            Ok(match self.kind {
                1 => Alteration::AddField(self.field.spec()?),
                2 => Alteration::DropField(name()?),
                3 => Alteration::DropFieldsByPrefix(name()?),
                4 => Alteration::RenameField { from: name()?, to: self.to.text()?.to_owned() },
                5 => {
                    let to = field_type_of(self.field.field_type)?;
                    Alteration::WidenField { name: name()?, to }
                }
                6 => Alteration::DropAll,
                7 => Alteration::SetOptions(self.options.options()),
                8 => Alteration::SetRules { name: name()?, rules: self.field.rules()? },
                _ => {
                    let message = "no such alteration; see FB_ALTER in forebay.h";
                    return Err(Error::invalid_argument(message));
                }
            })
        }
    }
}
