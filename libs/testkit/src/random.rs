//! Random field types, values, documents, changes, definitions and alterations from a seed.
//!
//! The draws are small and hostile on purpose: extremes, NaN, empty and repeated values are
//! frequent, so that a few hundred draws cover every special case.

use forebay_core::change::{Change, Condition, FieldChange, FieldOp, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::id::{DocumentVersion, Sequence, StoreId};
use forebay_core::key::{Key, KeyType};
use forebay_core::row::Document;
use forebay_core::schema::{Alteration, Definition, FieldSpec, StoreOptions, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use half::f16;

/// Every scalar type.
pub const SCALAR_TYPES: [ScalarType; 8] = [
    ScalarType::Bool,
    ScalarType::Int32,
    ScalarType::Int64,
    ScalarType::Float32,
    ScalarType::Float64,
    ScalarType::String,
    ScalarType::Bytes,
    ScalarType::Timestamp,
];

/// A seeded random number generator.
#[derive(Debug)]
pub struct SeededRng(SeededEntropy);

impl SeededRng {
    /// Returns the generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self(SeededEntropy::new(seed))
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64().expect("a seed always has more")
    }

    /// Returns a number from 0 up to `end`, `end` excluded; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end.max(1) as u64) as usize
    }

    /// Returns true with this probability, in percent.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a random item.
    ///
    /// # Panics
    /// Panics if there are no items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns random bytes, fewer than `end`.
    pub fn bytes(&mut self, end: usize) -> Vec<u8> {
        (0..self.below(end)).map(|_| self.bits() as u8).collect()
    }

    /// Returns this many random bytes, which no compression shrinks.
    pub fn noise(&mut self, bytes: usize) -> Vec<u8> {
        let mut noise: Vec<u8> =
            (0..bytes.div_ceil(8)).flat_map(|_| self.bits().to_le_bytes()).collect();
        noise.truncate(bytes);
        noise
    }

    /// Returns a field type; each kind is frequent.
    pub fn field_type(&mut self) -> FieldType {
        let scalar = *self.pick(&SCALAR_TYPES);
        let vectors = [VectorType::F32, VectorType::F16, VectorType::I8];
        match self.below(4) {
            0 => FieldType::List(scalar),
            1 => FieldType::Vector(*self.pick(&vectors), 1 + self.below(5) as u16),
            _ => FieldType::Scalar(scalar),
        }
    }

    /// Returns a value of this type.
    pub fn value(&mut self, field_type: FieldType) -> Value {
        match field_type {
            FieldType::Scalar(scalar) => self.scalar(scalar),
            FieldType::List(scalar) => {
                Value::List(scalar, (0..self.below(4)).map(|_| self.scalar(scalar)).collect())
            }
            FieldType::Vector(component, length) => {
                let places = 0..length;
                match component {
                    VectorType::F32 => Value::VectorF32(places.map(|_| self.float32()).collect()),
                    VectorType::F16 => Value::VectorF16(
                        places.map(|_| f16::from_bits(self.bits() as u16)).collect(),
                    ),
                    VectorType::I8 => Value::VectorI8(places.map(|_| self.bits() as i8).collect()),
                }
            }
        }
    }

    fn scalar(&mut self, scalar: ScalarType) -> Value {
        match scalar {
            ScalarType::Bool => Value::Bool(self.chance(50)),
            ScalarType::Int32 => Value::Int32(self.int() as i32),
            ScalarType::Int64 => Value::Int64(self.int()),
            ScalarType::Float32 => Value::Float32(self.float32()),
            ScalarType::Float64 => {
                let wide = f64::from_bits(self.bits());
                Value::Float64(*self.pick(&[wide, 0.0, -0.0, 1.5, f64::NAN, f64::INFINITY]))
            }
            ScalarType::String => {
                let texts = ["", "a", "b", "snail", "\u{0}", "grüße", "\u{1f40c}"];
                Value::String((*self.pick(&texts)).to_owned())
            }
            ScalarType::Bytes => Value::Bytes(self.bytes(5)),
            ScalarType::Timestamp => Value::Timestamp(self.int()),
        }
    }

    fn int(&mut self) -> i64 {
        let wide = self.bits() as i64;
        *self.pick(&[wide, 0, 1, 2, 3, -1, i64::MAX, i64::MIN, i64::from(i32::MAX)])
    }

    fn float32(&mut self) -> f32 {
        let wide = f32::from_bits(self.bits() as u32);
        *self.pick(&[wide, 0.0, -0.0, 2.5, f32::NAN, f32::NEG_INFINITY])
    }

    /// Returns a document of this definition: fields absent, null and set, expiries, versions.
    pub fn document(&mut self, definition: &Definition) -> Document {
        let version = self.chance(50).then(|| DocumentVersion(self.bits()));
        let mut document = Document::new(self.expiry(), version);
        for field in &definition.fields {
            let value = match self.below(4) {
                0 => continue,
                1 => None,
                _ => Some(self.value(field.field_type)),
            };
            let expires_at = self.expiry();
            document.set(field.id, value, expires_at);
        }
        document
    }

    fn expiry(&mut self) -> Option<Timestamp> {
        self.chance(25).then(|| Timestamp::from_micros(self.int()))
    }

    /// Returns a change of this key that the definition permits; `version` is a likely version for
    /// conditions.
    pub fn change(
        &mut self,
        definition: &Definition,
        key: Key,
        version: Option<DocumentVersion>,
    ) -> Change {
        let verb = *self.pick(&[
            Verb::Put,
            Verb::Upsert,
            Verb::Upsert,
            Verb::Upsert,
            Verb::Upsert,
            Verb::Delete,
        ]);
        let mut fields = Vec::new();
        for field in &definition.fields {
            if verb != Verb::Delete && Some(field.id) != definition.partition_key && self.chance(40)
            {
                let op = self.field_op(field.field_type, verb);
                fields.push(FieldChange { field: field.id, op, ttl_us: self.ttl() });
            }
        }
        if let Some(retired) = definition.retired.first()
            && verb != Verb::Delete
            && self.chance(20)
        {
            let op = FieldOp::Set(Some(Value::Bool(true)));
            fields.push(FieldChange { field: *retired, op, ttl_us: None });
        }
        let mut change = Change {
            sequence: Sequence(1),
            key,
            verb,
            fields,
            condition: None,
            ttl_us: self.ttl(),
        };
        if self.chance(30) {
            change.condition = self.condition(&change, definition, version);
        }
        change
    }

    fn ttl(&mut self) -> Option<i64> {
        self.chance(20).then(|| 1 + self.below(150) as i64)
    }

    fn condition(
        &mut self,
        change: &Change,
        definition: &Definition,
        version: Option<DocumentVersion>,
    ) -> Option<Condition> {
        let orders = |field_change: &&FieldChange| {
            matches!(field_change.op, FieldOp::Set(Some(_)))
                && definition
                    .field_by_id(field_change.field)
                    .is_some_and(|field| matches!(field.field_type, FieldType::Scalar(_)))
        };
        let ordering: Vec<_> =
            change.fields.iter().filter(orders).map(|field_change| field_change.field).collect();
        match self.below(3) {
            0 if definition.options.versioned => {
                let random = DocumentVersion(self.bits());
                let version_or_random =
                    if self.chance(80) { version.unwrap_or(random) } else { random };
                Some(Condition::IfVersion(version_or_random))
            }
            1 if !ordering.is_empty() => Some(Condition::IfNewer(*self.pick(&ordering))),
            _ => Some(Condition::IfAbsent),
        }
    }

    fn field_op(&mut self, field_type: FieldType, verb: Verb) -> FieldOp {
        if verb == Verb::Put || self.chance(30) {
            return FieldOp::Set(self.chance(85).then(|| self.value(field_type)));
        }
        let bound = 1 + self.below(4) as u32;
        let value = self.value(field_type);
        match (self.below(4), field_type) {
            (0, _) => FieldOp::Remove,
            (_, FieldType::Vector(..)) => FieldOp::Set(Some(value)),
            (kind, FieldType::List(_)) => {
                let Value::List(_, items) = value else { return FieldOp::Remove };
                match kind {
                    1 => FieldOp::ListAppend { items, bound },
                    2 => FieldOp::SetAdd { items, bound },
                    _ => FieldOp::SetRemove { items },
                }
            }
            (1, FieldType::Scalar(scalar)) if is_number(scalar) => FieldOp::Increment(value),
            (1 | 2, _) => FieldOp::Min(value),
            _ => FieldOp::Max(value),
        }
    }

    /// Returns a store of up to `fields_end - 1` fields.
    ///
    /// # Panics
    /// Never panics: the names differ.
    pub fn definition(&mut self, fields_end: usize) -> Definition {
        let mut spec = StoreSpec::documents("random", KeyType::Bytes).partitions(1);
        for number in 0..self.below(fields_end) {
            spec = spec.field(format!("field{number}"), self.field_type());
        }
        spec.define(StoreId(1)).expect("a definition of distinct fields")
    }

    /// Returns an alteration of fields that the definition has, or nearly has; the store may refuse
    /// it.
    pub fn alteration(&mut self, definition: &Definition) -> Alteration {
        let name = |dice: &mut Self| match dice.below(10) {
            0 => "nobody".to_owned(),
            _ if definition.fields.is_empty() => "nobody".to_owned(),
            _ => {
                let field = dice.pick(&definition.fields);
                let names: Vec<_> = std::iter::once(&field.name).chain(&field.aliases).collect();
                (*dice.pick(&names)).clone()
            }
        };
        let new_name = |dice: &mut Self| format!("name{}", dice.below(40));
        match self.below(12) {
            0..=3 => {
                let mut field = FieldSpec::new(new_name(self), self.field_type());
                field.default = self.chance(30).then(|| self.value(field.field_type));
                field.ttl_us = self.chance(30).then(|| 1 + self.below(1_000) as i64);
                Alteration::AddField(field)
            }
            4 | 5 => Alteration::DropField(name(self)),
            6 => Alteration::DropFieldsByPrefix(format!("name{}", self.below(4))),
            7 | 8 => {
                let to = if self.chance(20) { name(self) } else { new_name(self) };
                Alteration::RenameField { from: name(self), to }
            }
            9 => {
                let wider = [ScalarType::Int64, ScalarType::Float64, ScalarType::String];
                let to = FieldType::Scalar(*self.pick(&wider));
                Alteration::WidenField { name: name(self), to }
            }
            10 => Alteration::SetOptions(StoreOptions {
                ttl_us: self.chance(50).then(|| 1 + self.below(2_000) as i64),
                versioned: self.chance(50),
                ..StoreOptions::default()
            }),
            _ => Alteration::DropAll,
        }
    }
}

fn is_number(scalar: ScalarType) -> bool {
    use ScalarType::{Float32, Float64, Int32, Int64};
    matches!(scalar, Int32 | Int64 | Float32 | Float64)
}
