//! Tests of the domain from outside: rows, schemas, changes, and the fold against its model.

mod change;
mod fixture;
mod fold;
mod fold_model;
mod row;
mod schema;
mod shard_vectors;
mod stream;
mod vectors;
mod view;
