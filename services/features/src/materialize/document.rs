//! Document that is materialized for a group.

use forebay_core::Result;
use forebay_core::change::{FieldChange, FieldOp};
use forebay_core::clock::Timestamp;
use forebay_core::id::Position;
use forebay_core::key::Key;
use forebay_core::value::Value;
use forebay_core::view::Window;
use forebay_sketch::GroupTiles;

use crate::plan::Plan;

/// The materialization of a group.
pub(super) struct GroupDocument {
    /// The document of the group; `None` if its key is too long.
    pub(super) document: Option<(Key, Vec<FieldChange>)>,
    /// Time at which a window's values change even if no event arrives.
    pub(super) next: Option<Timestamp>,
}

/// Builder of documents at one position of a partition.
pub(super) struct DocumentBuilder<'p> {
    pub(super) plan: &'p Plan,
    pub(super) position: Position,
    /// The partition's time.
    pub(super) at: Timestamp,
    /// Time by the clock.
    pub(super) now: Timestamp,
}

impl DocumentBuilder<'_> {
    /// Computes all values of a group, with the position at which they are valid.
    ///
    /// # Errors
    /// `Corrupt` for an invalid group name; else as the aggregates.
    pub(super) fn build(&self, group: &[u8], tiles: &GroupTiles) -> Result<GroupDocument> {
        let Self { plan, position, at, .. } = self;
        let mut next: Option<Timestamp> = None;
        let Some(materialization) = &plan.view.materialization else {
            return Ok(GroupDocument { document: None, next });
        };
        let mut ids = materialization.fields.iter();
        let mut fields = Vec::with_capacity(materialization.fields.len() + 1);
        for named in &plan.view.windows {
            let values = tiles.values(&plan.fold, named.window, *at)?;
            let changes = tiles.next_change(named.window, *at);
            next = next.into_iter().chain(changes).min();
            let ttl_us = self.time_to_live(named.window, changes, materialization.expiry_grace_us);
            fields.extend(ids.by_ref().zip(values).map(|(id, value)| match ttl_us {
                // The value has expired already.
                Some(ttl_us) if ttl_us <= 0 => {
                    FieldChange { field: *id, op: FieldOp::Remove, ttl_us: None }
                }
                ttl_us => FieldChange { field: *id, op: FieldOp::Set(value), ttl_us },
            }));
        }
        let position = Value::Int64(position.document_version().0 as i64);
        let op = FieldOp::Set(Some(position));
        fields.push(FieldChange { field: materialization.position, op, ttl_us: None });
        let values = plan.group_values(group)?;
        let key = plan.view.document_key(&|column| plan.group_value(&values, column));
        let document = key.and_then(|key| Key::plain(&key).ok()).map(|key| (key, fields));
        Ok(GroupDocument { document, next })
    }

    /// Returns how long, from now on, a window's values may be read: until they change, plus the
    /// expiry grace; `None` if only an event changes them.
    fn time_to_live(
        &self,
        window: Window,
        changes: Option<Timestamp>,
        expiry_grace_us: i64,
    ) -> Option<i64> {
        let changes = changes.filter(|_| window != Window::Unbounded)?;
        Some(changes.plus_micros(expiry_grace_us).micros_since(self.now.max(self.at)))
    }
}
