//! All tests of `forebay-wire`, in one binary.

mod conversions;
mod copies;
mod entries;
mod frames;
mod statuses;
mod strategies;
mod tokens;
mod vectors;
mod views;
