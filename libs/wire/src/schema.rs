//! Conversion of stores, definitions and alterations to and from the messages of `store.proto`.

use forebay_core::id::{FieldId, Offset, PartitionCount, SchemaVersion, StoreId};
use forebay_core::key::KeyType;
use forebay_core::schema::{
    Alteration, ColumnIndex, ColumnRules, Definition, Field, FieldSpec, KEY_VALUE_FIELD,
    StoreOptions, StoreSpec, Stream, StreamSpec,
};
use forebay_core::value::{FieldType, Value};
use forebay_core::versions::{
    RepartitionSource, StoreLogs, StoreVersion, StoreVersions, VersionNumber,
};
use forebay_core::view::FeatureView;
use forebay_core::{Error, Result};

use crate::decode_error::{self, enumeration, newer_error, unset_error};
use crate::v1;
use crate::v1::alteration::{DropAll, Kind, Rename, SetRules, Widen};

enumeration!("a key type": KeyType, v1::KeyType {
    String = String,
    Bytes = Bytes,
    Int64 = Int64,
});

enumeration!("the index of a column": ColumnIndex, v1::ColumnIndex {
    Exact = Exact,
    Range = Range,
});

fn key_type(number: i32) -> Result<KeyType> {
    decode_error::from_number::<v1::KeyType, _>(number, "key type")
}

fn field_type(wire: Option<v1::FieldType>) -> Result<FieldType> {
    wire.ok_or_else(|| unset_error("the type of a field"))?.try_into()
}

impl From<&StoreOptions> for v1::StoreOptions {
    fn from(options: &StoreOptions) -> Self {
        let &StoreOptions {
            ttl_us,
            versioned,
            heartbeat_ms,
            log_retention_us,
            log_retention_bytes,
        } = options;
        Self { ttl_us, versioned, heartbeat_ms, log_retention_us, log_retention_bytes }
    }
}

impl From<v1::StoreOptions> for StoreOptions {
    /// Converts a heartbeat of 0 to the default; other limits are checked with the definition.
    fn from(wire: v1::StoreOptions) -> Self {
        let v1::StoreOptions {
            ttl_us,
            versioned,
            heartbeat_ms,
            log_retention_us,
            log_retention_bytes,
        } = wire;
        let heartbeat_ms = match heartbeat_ms {
            0 => Self::default().heartbeat_ms,
            set => set,
        };
        Self { ttl_us, versioned, heartbeat_ms, log_retention_us, log_retention_bytes }
    }
}

impl From<&FieldSpec> for v1::FieldSpec {
    fn from(field: &FieldSpec) -> Self {
        Self {
            name: field.name.clone(),
            r#type: Some(field.field_type.into()),
            default: field.default.as_ref().map(Into::into),
            ttl_us: field.ttl_us,
            rules: rules_message(&field.rules),
        }
    }
}

impl TryFrom<v1::FieldSpec> for FieldSpec {
    type Error = Error;

    fn try_from(wire: v1::FieldSpec) -> Result<Self> {
        let (field_type, default) = typed_default(wire.r#type, wire.default, &wire.name)?;
        let rules = rules(wire.rules, &wire.name)?;
        Ok(Self { name: wire.name, field_type, default, ttl_us: wire.ttl_us, rules })
    }
}

/// Omits empty rules, so that the bytes of a column without rules never change.
fn rules_message(rules: &ColumnRules) -> Option<v1::ColumnRules> {
    let allowed = rules.allowed.iter().map(Into::into).collect();
    let index = rules.index.map_or(v1::ColumnIndex::Unspecified, Into::into).into();
    (!rules.is_empty()).then(|| v1::ColumnRules { required: rules.required, allowed, index })
}

fn rules(wire: Option<v1::ColumnRules>, name: &str) -> Result<ColumnRules> {
    let Some(v1::ColumnRules { required, allowed, index }) = wire else {
        return Ok(ColumnRules::default());
    };
    let at_column = |error: Error| error.with_field(name);
    let allowed = allowed.into_iter().map(Value::try_from).collect::<Result<_>>();
    let index = (index != 0)
        .then(|| decode_error::from_number::<v1::ColumnIndex, _>(index, "index of a column"))
        .transpose();
    Ok(ColumnRules {
        required,
        allowed: allowed.map_err(at_column)?,
        index: index.map_err(at_column)?,
    })
}

fn typed_default(
    wire: Option<v1::FieldType>,
    default: Option<v1::Value>,
    name: &str,
) -> Result<(FieldType, Option<Value>)> {
    let convert = || Ok((field_type(wire)?, default.map(Value::try_from).transpose()?));
    convert().map_err(|error: Error| error.with_field(name))
}

impl From<&StoreSpec> for v1::StoreSpec {
    fn from(spec: &StoreSpec) -> Self {
        Self {
            name: spec.name.clone(),
            key_type: v1::KeyType::from(spec.key_type).into(),
            partition_key: spec.partition_key.clone(),
            partitions: spec.partitions,
            fields: spec.fields.iter().map(Into::into).collect(),
            options: Some((&spec.options).into()),
            key_value: spec.key_value,
            stream: spec
                .stream
                .as_ref()
                .map(|StreamSpec { event_time }| v1::StreamSpec { event_time: event_time.clone() }),
        }
    }
}

impl TryFrom<v1::StoreSpec> for StoreSpec {
    type Error = Error;

    /// Adds the only field of a key-value store if the sender left it out. [`StoreSpec::define`]
    /// checks names and limits.
    fn try_from(wire: v1::StoreSpec) -> Result<Self> {
        let name = wire.name;
        let convert = || {
            let key_type = key_type(wire.key_type)?;
            let fields = wire.fields.into_iter().map(FieldSpec::try_from).collect::<Result<_>>()?;
            let fields = if wire.key_value { key_value_fields(fields)? } else { fields };
            Ok((key_type, fields))
        };
        let (key_type, fields) = convert().map_err(|error: Error| error.with_store(&name))?;
        Ok(Self {
            name,
            key_type,
            partition_key: wire.partition_key,
            partitions: wire.partitions,
            fields,
            options: wire.options.map(Into::into).unwrap_or_default(),
            key_value: wire.key_value,
            stream: wire.stream.map(|v1::StreamSpec { event_time }| StreamSpec { event_time }),
        })
    }
}

fn key_value_fields(fields: Vec<FieldSpec>) -> Result<Vec<FieldSpec>> {
    let bytes = FieldType::BYTES;
    match fields.as_slice() {
        [] => Ok(vec![FieldSpec::new(KEY_VALUE_FIELD, bytes)]),
        [field] if field.name == KEY_VALUE_FIELD && field.field_type == bytes => Ok(fields),
        _ => Err(Error::invalid_argument(
            "a key-value store has one bytes field named \"value\"; leave its fields empty",
        )),
    }
}

impl From<&Field> for v1::Field {
    fn from(field: &Field) -> Self {
        Self {
            id: field.id.0,
            name: field.name.clone(),
            aliases: field.aliases.clone(),
            r#type: Some(field.field_type.into()),
            default: field.default.as_ref().map(Into::into),
            ttl_us: field.ttl_us,
            rules: rules_message(&field.rules),
        }
    }
}

impl TryFrom<v1::Field> for Field {
    type Error = Error;

    fn try_from(wire: v1::Field) -> Result<Self> {
        let (field_type, default) = typed_default(wire.r#type, wire.default, &wire.name)?;
        let rules = rules(wire.rules, &wire.name)?;
        Ok(Self {
            id: FieldId(wire.id),
            name: wire.name,
            aliases: wire.aliases,
            field_type,
            default,
            ttl_us: wire.ttl_us,
            rules,
        })
    }
}

impl From<&Definition> for v1::Definition {
    fn from(definition: &Definition) -> Self {
        Self {
            store_id: definition.store.0,
            name: definition.name.clone(),
            version: definition.version.0,
            key_type: v1::KeyType::from(definition.key_type).into(),
            partition_key: definition.partition_key.map(|id| id.0),
            partitions: definition.partitions.0,
            fields: definition.fields.iter().map(Into::into).collect(),
            retired: definition.retired.iter().map(|id| id.0).collect(),
            next_field_id: definition.next_field_id.0,
            drop_all_count: definition.drop_all_count,
            options: Some((&definition.options).into()),
            key_value: definition.key_value,
            versions: versions_of(definition),
            stream: definition.stream.as_ref().map(|stream| v1::Stream {
                event_time: stream.event_time.map(|id| id.0),
                view: stream.view.as_deref().map(Into::into),
            }),
        }
    }
}

/// Returns the versions of a definition; `None` if the rest of the definition implies them.
fn versions_of(definition: &Definition) -> Option<v1::StoreVersions> {
    let versions = &definition.versions;
    // In the definition under a version's storage id the store's id occurs only here.
    let is_of_version = definition.store != versions.home();
    let is_told = is_of_version || !versions.have_only_the_first();
    is_told.then(|| versions_with(versions, is_of_version || versions.have_repartitions()))
}

/// Converts versions, with the logs that they follow or without.
fn versions_with(versions: &StoreVersions, with_logs: bool) -> v1::StoreVersions {
    let logs = |logs: StoreLogs| with_logs.then(|| logs.into());
    let version = |version: &StoreVersion| v1::StoreVersion {
        number: version.number.0,
        storage_id: version.storage_id.0,
        start_offsets: version.start_offsets.iter().map(|offset| offset.0).collect(),
        logs: logs(version.logs),
        repartition_source: version.repartition_source.as_ref().map(|source| {
            v1::RepartitionSource {
                from: Some(source.from.into()),
                start_offsets: source.start_offsets.iter().map(|offset| offset.0).collect(),
            }
        }),
    };
    v1::StoreVersions {
        versions: versions.all().iter().map(version).collect(),
        live: versions.live().number.0,
        next: versions.next().0,
        write_logs: logs(versions.write_logs()),
        home: with_logs.then(|| versions.home().0),
    }
}

impl From<&StoreVersions> for v1::StoreVersions {
    fn from(versions: &StoreVersions) -> Self {
        versions_with(versions, versions.have_repartitions())
    }
}

impl From<StoreLogs> for v1::StoreLogs {
    fn from(logs: StoreLogs) -> Self {
        let StoreLogs { store, partitions, repartition_count } = logs;
        Self {
            store: store.0,
            partitions: partitions.0,
            repartition_count: repartition_count.into(),
        }
    }
}

impl TryFrom<v1::StoreLogs> for StoreLogs {
    type Error = Error;

    fn try_from(wire: v1::StoreLogs) -> Result<Self> {
        let repartition_count = u8::try_from(wire.repartition_count).map_err(|_| {
            Error::invalid_argument(
                "the store has been repartitioned 255 times, which is the limit",
            )
        })?;
        let (store, partitions) = (StoreId(wire.store), PartitionCount(wire.partitions));
        Ok(Self { store, partitions, repartition_count })
    }
}

fn versions(
    wire: v1::StoreVersions,
    store: StoreId,
    partitions: PartitionCount,
) -> Result<StoreVersions> {
    let home = wire.home.map_or(store, StoreId);
    let first = StoreLogs::first(home, partitions);
    let logs = |wire: Option<v1::StoreLogs>| wire.map_or(Ok(first), StoreLogs::try_from);
    let offsets = |wire: Vec<u64>| wire.into_iter().map(Offset).collect();
    let source = |wire: v1::RepartitionSource| -> Result<_> {
        let from = wire.from.ok_or_else(|| unset_error("the source of a repartition"))?;
        Ok(RepartitionSource { from: from.try_into()?, start_offsets: offsets(wire.start_offsets) })
    };
    let version = |version: v1::StoreVersion| {
        Ok(StoreVersion {
            number: VersionNumber(version.number),
            storage_id: StoreId(version.storage_id),
            start_offsets: offsets(version.start_offsets),
            logs: logs(version.logs)?,
            repartition_source: version.repartition_source.map(source).transpose()?,
        })
    };
    let versions = wire.versions.into_iter().map(version).collect::<Result<_>>()?;
    let (live, next) = (VersionNumber(wire.live), VersionNumber(wire.next));
    StoreVersions::new(home, versions, live, next, logs(wire.write_logs)?)
}

fn stream(wire: v1::Stream) -> Result<Stream> {
    let view = wire.view.map(FeatureView::try_from).transpose()?;
    Ok(Stream { event_time: wire.event_time.map(FieldId), view: view.map(Box::new) })
}

impl TryFrom<v1::Definition> for Definition {
    type Error = Error;

    /// Accepts only a definition that passes [`Definition::check`].
    fn try_from(wire: v1::Definition) -> Result<Self> {
        let name = wire.name;
        let convert = || {
            let key_type = key_type(wire.key_type)?;
            let fields = wire.fields.into_iter().map(Field::try_from).collect::<Result<_>>()?;
            let options = wire.options.ok_or_else(|| unset_error("the options of a definition"))?;
            Ok((key_type, fields, options, wire.stream.map(stream).transpose()?))
        };
        let (key_type, fields, options, stream) =
            convert().map_err(|error: Error| error.with_store(&name))?;
        let (store, partitions) = (StoreId(wire.store_id), PartitionCount(wire.partitions));
        let versions = match wire.versions {
            None => StoreVersions::first(store, partitions),
            Some(wire) => {
                versions(wire, store, partitions).map_err(|error| error.with_store(&name))?
            }
        };
        let definition = Self {
            store,
            name,
            version: SchemaVersion(wire.version),
            key_type,
            partition_key: wire.partition_key.map(FieldId),
            partitions,
            fields,
            retired: wire.retired.into_iter().map(FieldId).collect(),
            next_field_id: FieldId(wire.next_field_id),
            drop_all_count: wire.drop_all_count,
            options: options.into(),
            key_value: wire.key_value,
            stream,
            versions,
        };
        definition.check()?;
        Ok(definition)
    }
}

impl From<&Alteration> for v1::Alteration {
    fn from(alteration: &Alteration) -> Self {
        let kind = match alteration {
            Alteration::AddField(field) => Kind::AddField(field.into()),
            Alteration::DropField(name) => Kind::DropField(name.clone()),
            Alteration::DropFieldsByPrefix(prefix) => Kind::DropFieldsByPrefix(prefix.clone()),
            Alteration::RenameField { from, to } => {
                Kind::RenameField(Rename { from: from.clone(), to: to.clone() })
            }
            Alteration::WidenField { name, to } => {
                Kind::WidenField(Widen { name: name.clone(), to: Some((*to).into()) })
            }
            Alteration::SetRules { name, rules } => {
                Kind::SetRules(SetRules { name: name.clone(), rules: rules_message(rules) })
            }
            Alteration::DropAll => Kind::DropAll(DropAll {}),
            Alteration::SetOptions(options) => Kind::SetOptions(options.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Alteration> for Alteration {
    type Error = Error;

    fn try_from(wire: v1::Alteration) -> Result<Self> {
        Ok(match wire.kind.ok_or_else(|| newer_error("the kind of an alteration"))? {
            Kind::AddField(field) => Self::AddField(field.try_into()?),
            Kind::DropField(name) => Self::DropField(name),
            Kind::DropFieldsByPrefix(prefix) => Self::DropFieldsByPrefix(prefix),
            Kind::RenameField(Rename { from, to }) => Self::RenameField { from, to },
            Kind::WidenField(Widen { name, to }) => {
                let to = field_type(to).map_err(|error| error.with_field(&name))?;
                Self::WidenField { name, to }
            }
            Kind::SetRules(SetRules { name, rules: wire_rules }) => {
                let rules = rules(wire_rules, &name)?;
                Self::SetRules { name, rules }
            }
            Kind::DropAll(_) => Self::DropAll,
            Kind::SetOptions(options) => Self::SetOptions(options.into()),
        })
    }
}
