//! Text form of a feature view, with names instead of ids.

use std::time::Duration;

use forebay_core::id::{FieldId, StoreId};
use forebay_core::schema::Definition;
use forebay_core::value::Value;
use forebay_core::view::{
    AggregateKind, Comparison, Feature, FeatureView, NamedWindow, Operand, Origin, Predicate,
    Window,
};

/// Returns the name of a stream or store.
pub(super) fn name_of(all: &[Definition], store: StoreId) -> String {
    let found = all.iter().find(|definition| definition.store == store);
    found.map_or_else(|| format!("{store:?}"), |definition| definition.name.clone())
}

/// Formats a view as lines; returns none for a definition that is not a view.
pub(super) fn lines(definition: &Definition, all: &[Definition]) -> Vec<String> {
    let Some(view) = definition.view() else { return Vec::new() };
    let mut lines = vec![
        format!("view {}, version {}", definition.name, definition.version),
        format!("source: {}", name_of(all, view.source)),
    ];
    if let Some(filter) = &view.filter {
        lines.push(format!("where: {}", condition(filter, all, view.source)));
    }
    lines.extend(joins(definition, view, all));
    let groups: Vec<_> = view.entity.iter().map(|id| column(Some(definition), *id)).collect();
    lines.push(format!("entity: {}", groups.join(", ")));
    let extra = extra_columns(definition, view);
    if !extra.is_empty() {
        lines.push(format!("extra_columns: {}", extra.join(", ")));
    }
    lines.extend(view.windows.iter().map(window));
    lines.push(format!("allowed_lateness: {}", duration(view.allowed_lateness_us)));
    lines.push(format!("partitions: {}", definition.write_logs().partitions));
    lines.extend(materialization(view, all));
    for one in &view.features {
        lines.push(format!("feature {}: {}", one.name, feature(one, definition)));
        let alone = FeatureView { features: vec![one.clone()], ..view.clone() };
        let outputs = alone.outputs().into_iter();
        lines.extend(outputs.map(|output| format!("  {}: {}", output.name, output.field_type)));
    }
    lines
}

/// Formats the view's materialization, and the values whose field has another name.
fn materialization(view: &FeatureView, all: &[Definition]) -> Vec<String> {
    let Some(materialization) = &view.materialization else { return Vec::new() };
    let store = all.iter().find(|definition| definition.store == materialization.store);
    let (name, position) =
        (name_of(all, materialization.store), column(store, materialization.position));
    let (interval, grace) =
        (duration(materialization.interval_us), duration(materialization.expiry_grace_us));
    let mut lines = vec![
        format!("materialize: to {name}, interval {interval}, expiry_grace {grace}"),
        format!("  position: {position}"),
    ];
    for (output, id) in view.outputs().into_iter().zip(&materialization.fields) {
        let field = column(store, *id);
        if field != output.name {
            lines.push(format!("  {}: {field}", output.name));
        }
    }
    lines
}

fn column(of: Option<&Definition>, id: FieldId) -> String {
    let found = of.and_then(|definition| definition.field_by_id(id));
    found.map_or_else(|| format!("{id:?}"), |field| field.name.clone())
}

fn joins(definition: &Definition, view: &FeatureView, all: &[Definition]) -> Vec<String> {
    let by_id = |id: StoreId| all.iter().find(|definition| definition.store == id);
    let mut lines = Vec::new();
    for (number, one) in view.joins.iter().enumerate() {
        let key = one.key.map_or("key".to_owned(), |id| column(by_id(view.source), id));
        let required = if one.is_required { ", required" } else { "" };
        lines.push(format!("join: {} by {key}{required}", name_of(all, one.store)));
        for own in &definition.fields {
            let Some(Origin::Join { join, field }) = view.columns.get(&own.id) else {
                continue;
            };
            if usize::from(*join) == number {
                let default = own.default.as_ref().map(|value| format!(", else {}", text(value)));
                let (field, default) =
                    (column(by_id(one.store), *field), default.unwrap_or_default());
                lines.push(format!("  {}: {field}{default}", own.name));
            }
        }
    }
    lines
}

/// Returns the columns that neither groups nor features need.
fn extra_columns<'d>(definition: &'d Definition, view: &FeatureView) -> Vec<&'d str> {
    let is_needed = |id: FieldId| {
        definition.event_time().is_some_and(|column| column.id == id)
            || view.entity.contains(&id)
            || view.features.iter().any(|feature| feature.input == Some(id))
    };
    let extra = definition.fields.iter().filter(|field| !is_needed(field.id));
    extra.map(|field| field.name.as_str()).collect()
}

fn window(one: &NamedWindow) -> String {
    let span = match one.window {
        Window::Tumbling { length_us } => format!("tumbling {}", duration(length_us)),
        Window::Sliding { length_us, slide_us } => {
            format!("sliding {} by {}", duration(length_us), duration(slide_us))
        }
        Window::Unbounded => "unbounded".to_owned(),
    };
    match one.name.as_str() {
        "" => format!("window: {span}"),
        name => format!("window {name}: {span}"),
    }
}

fn feature(feature: &Feature, definition: &Definition) -> String {
    use AggregateKind as Kind;
    let kind = feature.aggregate.kind();
    let mut said = kind.name().to_owned();
    if let Some(input) = feature.input {
        said.push_str(&format!(" of {}", column(Some(definition), input)));
    }
    said + &match kind {
        Kind::LastN { count } => format!(", n {count}"),
        Kind::ApproxCountDistinct { lg_k, confidence_stddevs: None } => format!(", lg_k {lg_k}"),
        Kind::ApproxCountDistinct { lg_k, confidence_stddevs: Some(stddevs) } => {
            format!(", lg_k {lg_k}, confidence_stddevs {stddevs}")
        }
        Kind::ApproxQuantile { q, k } => format!(", q {q:?}, k {k}"),
        Kind::TopK { count, lg_counters } => format!(", n {count}, lg_counters {lg_counters}"),
        _ => String::new(),
    }
}

/// Formats a condition on the columns of a stream in the syntax of declarations.
fn condition(predicate: &Predicate<FieldId>, all: &[Definition], source: StoreId) -> String {
    let source = all.iter().find(|definition| definition.store == source);
    let name = |id: &FieldId| column(source, *id);
    said(predicate, &name)
}

fn said(predicate: &Predicate<FieldId>, name: &impl Fn(&FieldId) -> String) -> String {
    let nested = |inner: &Predicate<FieldId>| match inner {
        Predicate::All(_) | Predicate::Any(_) => format!("({})", said(inner, name)),
        _ => said(inner, name),
    };
    let joined = |some: &[Predicate<FieldId>], by: &str| {
        some.iter().map(nested).collect::<Vec<_>>().join(by)
    };
    match predicate {
        Predicate::All(some) => joined(some, " and "),
        Predicate::Any(some) => joined(some, " or "),
        Predicate::Not(inner) => match &**inner {
            Predicate::IsMissing(column) => format!("{} is not null", name(column)),
            Predicate::IsOneOf { column, values } => {
                format!("{} not in ({})", name(column), list(values))
            }
            other => format!("not ({})", said(other, name)),
        },
        Predicate::IsMissing(column) => format!("{} is null", name(column)),
        Predicate::IsOneOf { column, values } => format!("{} in ({})", name(column), list(values)),
        Predicate::Compare { column, comparison, to } => {
            let to = match to {
                Operand::Value(value) => text(value),
                Operand::Column(other) => name(other),
            };
            format!("{} {} {to}", name(column), sign(*comparison))
        }
    }
}

fn sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

fn list(values: &[Value]) -> String {
    values.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn text(value: &Value) -> String {
    match value {
        Value::Bool(is_true) => is_true.to_string(),
        Value::Int32(number) => number.to_string(),
        Value::Int64(number) => number.to_string(),
        Value::Float32(number) => number.to_string(),
        Value::Float64(number) => number.to_string(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Bytes(bytes) => format!("'{}'", bytes.escape_ascii()),
        other => format!("{other:?}"),
    }
}

fn duration(micros: i64) -> String {
    humantime::format_duration(Duration::from_micros(micros.max(0).unsigned_abs())).to_string()
}
