//! Checks of a view. They apply to every declaration; decoders call them, too.

use std::collections::BTreeSet;

use super::{Feature, Origin, View};
use crate::error::{Error, Result};
use crate::id::FieldId;
use crate::limits::{
    AGGREGATES_MAX, FIELDS_MAX, GROUP_COLUMNS_MAX, LOOKUPS_MAX, WINDOW_US_MAX, WINDOWS_MAX,
};
use crate::schema::{Definition, check_name};
use crate::value::{FieldType, ScalarType};
use crate::view::AggregateKind;

/// An output value of a view for a group: a field of the documents to which the view emits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewOutput {
    /// Name, composed of the names of feature, window and aggregate output, as far as each has one.
    pub name: String,
    /// Type of the value.
    pub field_type: FieldType,
}

impl View {
    /// Returns all output values for a group, ordered by window and then by feature.
    pub fn outputs(&self) -> Vec<ViewOutput> {
        let mut outputs = Vec::new();
        for window in &self.windows {
            for feature in &self.features {
                outputs.extend(feature.aggregate.outputs().into_iter().map(|output| {
                    let parts = [&feature.name, &window.name, &output.suffix];
                    let named = parts.into_iter().filter(|part| !part.is_empty());
                    let name = named.map(String::as_str).collect::<Vec<_>>().join("_");
                    ViewOutput { name, field_type: output.field_type }
                }));
            }
        }
        outputs
    }

    /// Refuses a view that breaks a limit or contradicts itself or its own stream.
    pub(crate) fn check(&self, definition: &Definition) -> Result<()> {
        if self.source == definition.store {
            return Err(Error::invalid_argument("a view is of another stream"));
        }
        within("group by fewer columns", self.group_by.len(), GROUP_COLUMNS_MAX)?;
        within("look up in fewer stores", self.lookups.len(), LOOKUPS_MAX)?;
        within("declare fewer features", self.features.len(), AGGREGATES_MAX)?;
        within("declare fewer windows", self.windows.len(), WINDOWS_MAX)?;
        if self.group_by.is_empty() || self.features.is_empty() || self.windows.is_empty() {
            let message = "a view groups by a column, and has a feature and a window";
            return Err(Error::invalid_argument(message));
        }
        self.check_columns(definition)?;
        self.check_groups(definition)?;
        if self.partition_by().next().is_none() && definition.written().partitions.0 != 1 {
            let message = "a view that groups by nothing but what it looks up has one partition";
            return Err(Error::invalid_argument(message));
        }
        self.check_windows()?;
        self.features.iter().try_for_each(|feature| self.check_feature(feature, definition))?;
        self.check_outputs()?;
        match &self.emission {
            Some(emission) => emission.check(self, definition),
            None => Ok(()),
        }
    }

    fn check_columns(&self, definition: &Definition) -> Result<()> {
        let own: BTreeSet<_> = definition.fields.iter().map(|field| field.id).collect();
        if !self.columns.keys().copied().eq(own) {
            let message = "each column of a view comes from somewhere, and nothing else does";
            return Err(Error::invalid_argument(message));
        }
        let lookups = self.lookups.len();
        let is_known = |origin: &Origin| match origin {
            Origin::Lookup { lookup, .. } => usize::from(*lookup) < lookups,
            Origin::Key | Origin::EventTime | Origin::Column(_) => true,
        };
        if !self.columns.values().all(is_known) {
            return Err(Error::invalid_argument("a column comes from a lookup that is not there"));
        }
        let event_time = definition.event_time().and_then(|column| self.columns.get(&column.id));
        if event_time != Some(&Origin::EventTime) {
            let message = "a view's event time is that of its source";
            return Err(Error::invalid_argument(message));
        }
        Ok(())
    }

    fn check_groups(&self, definition: &Definition) -> Result<()> {
        use ScalarType::{Bool, Bytes, Int32, Int64, String, Timestamp};
        let mut seen = BTreeSet::new();
        for id in &self.group_by {
            let column = definition.field_by_id(*id);
            let column =
                column.ok_or_else(|| Error::invalid_argument("a group by no such column"))?;
            let message = match column.field_type {
                _ if !seen.insert(*id) => "group by each column once".to_owned(),
                FieldType::Scalar(Bool | Int32 | Int64 | String | Bytes | Timestamp) => continue,
                other => format!("no group is by a {other}; take a scalar that is no float"),
            };
            return Err(Error::invalid_argument(message).with_field(&column.name));
        }
        Ok(())
    }

    fn check_windows(&self) -> Result<()> {
        if self.lateness_us < 0 {
            return Err(Error::invalid_argument("give a lateness of zero or more"));
        }
        if self.lateness_us > WINDOW_US_MAX {
            let (limit, actual) = (WINDOW_US_MAX as u64, self.lateness_us as u64);
            return Err(Error::limit_exceeded("shorten the lateness", limit, actual));
        }
        for (place, one) in self.windows.iter().enumerate() {
            one.window.check()?;
            if !one.name.is_empty() {
                check_name(&one.name)?;
            }
            if self.windows[..place].iter().any(|other| other.window == one.window) {
                return Err(Error::invalid_argument("declare each window once"));
            }
        }
        Ok(())
    }

    fn check_feature(&self, feature: &Feature, definition: &Definition) -> Result<()> {
        check_name(&feature.name)?;
        let at_feature = |error: Error| error.with_field(&feature.name);
        let of = |id: FieldId| definition.field_by_id(id).map(|column| column.field_type);
        let input = match feature.input.map(of) {
            None => None,
            Some(Some(FieldType::Scalar(scalar))) => Some(scalar),
            Some(Some(other)) => {
                let message = format!("no feature is of a {other}; take a scalar");
                return Err(at_feature(Error::invalid_argument(message)));
            }
            Some(None) => {
                return Err(at_feature(Error::invalid_argument("a feature of no such column")));
            }
        };
        if input != feature.aggregate.input() {
            let message = "a feature takes in values of its column's type";
            return Err(at_feature(Error::invalid_argument(message)));
        }
        let accumulates = matches!(feature.aggregate.kind(), AggregateKind::AccumulatingCount);
        let is_lifetime = self.windows.iter().all(|one| one.window == super::Window::Lifetime);
        if accumulates && !is_lifetime {
            let message = "an accumulating count is of all time: give it a view without windows";
            return Err(at_feature(Error::invalid_argument(message)));
        }
        Ok(())
    }

    fn check_outputs(&self) -> Result<()> {
        let outputs = self.outputs();
        within("declare fewer features or windows", outputs.len(), FIELDS_MAX)?;
        let mut names = BTreeSet::new();
        for output in &outputs {
            check_name(&output.name).map_err(|error| error.with_field(&output.name))?;
            if !names.insert(output.name.as_str()) {
                let message = "two values have one name: name features and windows otherwise";
                return Err(Error::invalid_argument(message).with_field(&output.name));
            }
        }
        Ok(())
    }
}

fn within(advice: &str, found: usize, limit: usize) -> Result<()> {
    if found > limit {
        return Err(Error::limit_exceeded(advice, limit as u64, found as u64));
    }
    Ok(())
}
