//! Checks of a view. They apply to every declaration; decoders call them, too.

use std::collections::BTreeSet;

use super::{Feature, FeatureView, Origin};
use crate::error::{Error, Result};
use crate::id::FieldId;
use crate::limits::{
    AGGREGATES_MAX, FIELDS_MAX, GROUP_COLUMNS_MAX, JOINS_MAX, WINDOW_US_MAX, WINDOWS_MAX,
};
use crate::schema::{Definition, check_name};
use crate::value::{FieldType, ScalarType};
use crate::view::AggregateKind;

/// An output value of a view for a group: a field of the documents to which the view materializes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewOutput {
    /// Name, composed of the names of feature, window and aggregate output, as far as each has one.
    pub name: String,
    /// Type of the value.
    pub field_type: FieldType,
}

impl FeatureView {
    /// Returns all output values for a group, ordered by window and then by feature.
    pub fn outputs(&self) -> Vec<ViewOutput> {
        let mut outputs = Vec::new();
        for window in &self.windows {
            for feature in &self.features {
                outputs.extend(feature.aggregate.outputs().into_iter().map(|output| {
                    let parts = [&feature.name, &window.name, &output.suffix];
                    let named_parts = parts.into_iter().filter(|part| !part.is_empty());
                    let name = named_parts.map(String::as_str).collect::<Vec<_>>().join("_");
                    ViewOutput { name, field_type: output.field_type }
                }));
            }
        }
        outputs
    }

    /// Refuses a view that breaks a limit or contradicts itself or its own stream.
    pub(crate) fn check(&self, definition: &Definition) -> Result<()> {
        if self.source == definition.store {
            return Err(Error::invalid_argument(
                "a view cannot be a view of itself; name another stream",
            ));
        }
        check_limit(
            "the view groups by too many columns; group by fewer columns",
            self.entity.len(),
            GROUP_COLUMNS_MAX,
        )?;
        check_limit("the view has too many joins; join fewer stores", self.joins.len(), JOINS_MAX)?;
        check_limit(
            "the view has too many features; declare fewer features",
            self.features.len(),
            AGGREGATES_MAX,
        )?;
        check_limit(
            "the view has too many windows; declare fewer windows",
            self.windows.len(),
            WINDOWS_MAX,
        )?;
        if self.entity.is_empty() || self.features.is_empty() || self.windows.is_empty() {
            let message =
                "a view needs an entity column, a feature and a window; declare each of the three";
            return Err(Error::invalid_argument(message));
        }
        self.check_columns(definition)?;
        self.check_groups(definition)?;
        if self.partition_by().next().is_none() && definition.write_logs().partitions.0 != 1 {
            let message = "a view that groups only by joined columns has one partition; declare \
                1 partition";
            return Err(Error::invalid_argument(message));
        }
        self.check_windows()?;
        self.features.iter().try_for_each(|feature| self.check_feature(feature, definition))?;
        self.check_outputs()?;
        match &self.materialization {
            Some(materialization) => materialization.check(self, definition),
            None => Ok(()),
        }
    }

    fn check_columns(&self, definition: &Definition) -> Result<()> {
        let field_ids: BTreeSet<_> = definition.fields.iter().map(|field| field.id).collect();
        if !self.columns.keys().copied().eq(field_ids) {
            let message = "the origins of a view's columns do not match its columns; give each \
                column one origin";
            return Err(Error::invalid_argument(message));
        }
        let joins = self.joins.len();
        let is_known = |origin: &Origin| match origin {
            Origin::Join { join, .. } => usize::from(*join) < joins,
            Origin::Key | Origin::EventTime | Origin::Column(_) => true,
        };
        if !self.columns.values().all(is_known) {
            return Err(Error::invalid_argument(
                "a column comes from a join that the view does not have; declare the join",
            ));
        }
        let event_time = definition.event_time().and_then(|column| self.columns.get(&column.id));
        if event_time != Some(&Origin::EventTime) {
            let message = "the event time of a view must be the event time of its stream; name \
                that column";
            return Err(Error::invalid_argument(message));
        }
        Ok(())
    }

    fn check_groups(&self, definition: &Definition) -> Result<()> {
        use ScalarType::{Bool, Bytes, Int32, Int64, String, Timestamp};
        let mut seen_ids = BTreeSet::new();
        for id in &self.entity {
            let column = definition.field_by_id(*id);
            let column = column.ok_or_else(|| {
                Error::invalid_argument(
                    "the view groups by a column that it does not have; add the column to the view",
                )
            })?;
            let message = match column.field_type {
                _ if !seen_ids.insert(*id) => {
                    "the view groups by a column twice; group by each column once".to_owned()
                }
                FieldType::Scalar(Bool | Int32 | Int64 | String | Bytes | Timestamp) => continue,
                other => {
                    format!("a view cannot group by a {other}; choose a scalar that is no float")
                }
            };
            return Err(Error::invalid_argument(message).with_field(&column.name));
        }
        Ok(())
    }

    fn check_windows(&self) -> Result<()> {
        if self.allowed_lateness_us < 0 {
            return Err(Error::invalid_argument(
                "the allowed lateness is negative; give a lateness of zero or more",
            ));
        }
        if self.allowed_lateness_us > WINDOW_US_MAX {
            let (limit, actual) = (WINDOW_US_MAX as u64, self.allowed_lateness_us as u64);
            return Err(Error::limit_exceeded(
                "the allowed lateness is too long; shorten the lateness",
                limit,
                actual,
            ));
        }
        for (place, named_window) in self.windows.iter().enumerate() {
            named_window.window.check()?;
            if !named_window.name.is_empty() {
                check_name(&named_window.name)?;
            }
            if self.windows[..place].iter().any(|other| other.window == named_window.window) {
                return Err(Error::invalid_argument(
                    "a window is declared twice; declare each window once",
                ));
            }
        }
        Ok(())
    }

    fn check_feature(&self, feature: &Feature, definition: &Definition) -> Result<()> {
        check_name(&feature.name)?;
        let at_feature = |error: Error| error.with_field(&feature.name);
        let type_of = |id: FieldId| definition.field_by_id(id).map(|column| column.field_type);
        let input = match feature.input.map(type_of) {
            None => None,
            Some(Some(FieldType::Scalar(scalar))) => Some(scalar),
            Some(Some(other)) => {
                let message =
                    format!("a feature cannot aggregate a {other}; choose a scalar column");
                return Err(at_feature(Error::invalid_argument(message)));
            }
            Some(None) => {
                return Err(at_feature(Error::invalid_argument(
                    "a feature aggregates a column that the view does not have; add the column to \
                     `extra_columns`",
                )));
            }
        };
        if input != feature.aggregate.input() {
            let message = "the input type of a feature is not the type of its column; apply the \
                view again";
            return Err(at_feature(Error::invalid_argument(message)));
        }
        let accumulates = matches!(feature.aggregate.kind(), AggregateKind::AccumulatingCount);
        let is_unbounded = self.windows.iter().all(|one| one.window == super::Window::Unbounded);
        if accumulates && !is_unbounded {
            let message =
                "an accumulating count covers all time; declare it in a view without windows";
            return Err(at_feature(Error::invalid_argument(message)));
        }
        Ok(())
    }

    fn check_outputs(&self) -> Result<()> {
        let outputs = self.outputs();
        check_limit(
            "the view has too many values; declare fewer features or windows",
            outputs.len(),
            FIELDS_MAX,
        )?;
        let mut names = BTreeSet::new();
        for output in &outputs {
            check_name(&output.name).map_err(|error| error.with_field(&output.name))?;
            if !names.insert(output.name.as_str()) {
                let message = "two values have the same name; rename a feature or a window";
                return Err(Error::invalid_argument(message).with_field(&output.name));
            }
        }
        Ok(())
    }
}

fn check_limit(advice: &str, found: usize, limit: usize) -> Result<()> {
    if found > limit {
        return Err(Error::limit_exceeded(advice, limit as u64, found as u64));
    }
    Ok(())
}
