//! Cost of reads: gets of one field in blocks, and gathers into a reused matrix.

use forebay::Reader;
use forebay::reads::{Conversion, GatherField, GatherOut, GatherPlan};
use forebay::schema::{FieldType, Value};
use forebay_demo::{Failure, Times};
use serde_json::json;
use tokio::time::Instant;

use crate::dump::Rows;

/// Gets between two clock readings: a reading costs as much as a get.
const GETS_PER_BLOCK: u32 = 256;
const BLOCKS: usize = 1_000;
const BLOCKS_BEFORE: usize = 100;
const GATHERS: usize = 300;
const GATHERS_BEFORE: usize = 30;
/// Arbitrary seed: each run reads the same keys.
const SEED: u64 = 41;
/// The gathered fields, in this order.
pub const GATHERED: [&str; 8] = [
    "year",
    "rating_count",
    "rating_sum",
    "rating_min",
    "rating_max",
    "last_rated",
    "high_count",
    "low_count",
];

/// Measures gets of one field of random existing movies.
pub fn gets(movies: &Reader, rows: &Rows) -> Result<serde_json::Value, Failure> {
    let keys: Vec<i64> = rows.movies.iter().map(|movie| movie.key).collect();
    let count = movies.field_as("rating_count", FieldType::INT64)?;
    let mut random = SEED;
    let mut times = Times::new()?;
    let mut found = 0;
    for block in 0..BLOCKS_BEFORE + BLOCKS {
        let block_keys: Vec<i64> =
            (0..GETS_PER_BLOCK).map(|_| keys[next(&mut random) as usize % keys.len()]).collect();
        let began = Instant::now();
        for key in block_keys {
            let read = movies.get_scalar::<i64>(&count, key)?;
            found += u64::from(read.value().is_some());
        }
        let time = began.elapsed();
        if block >= BLOCKS_BEFORE {
            times.record(time / GETS_PER_BLOCK);
        }
    }
    let expected = (BLOCKS_BEFORE + BLOCKS) as u64 * u64::from(GETS_PER_BLOCK);
    if found != expected {
        return Err(format!("{found} of {expected} gets found their movie").into());
    }
    Ok(json!({ "p50_ns": times.nanos(0.5), "p99_ns": times.nanos(0.99) }))
}

/// Measures gathers of the candidates, with a plan that is created once.
pub fn gathers(movies: &Reader, candidates: &[i64]) -> Result<serde_json::Value, Failure> {
    let plan = plan(movies)?;
    let mut matrix = vec![0.0; candidates.len() * plan.width()];
    let mut times = Times::new()?;
    for round in 0..GATHERS_BEFORE + GATHERS {
        let began = Instant::now();
        gather(movies, &plan, candidates, &mut matrix)?;
        let time = began.elapsed();
        if round >= GATHERS_BEFORE {
            times.record(time);
        }
    }
    Ok(json!({
        "keys": candidates.len(),
        "fields": plan.width(),
        "p50_us": times.micros(0.5),
        "p99_us": times.micros(0.99),
    }))
}

/// Returns the plan of the gather. Counts and times are below 2^53, so a float64 holds them
/// exactly.
pub fn plan(movies: &Reader) -> Result<GatherPlan<f64>, Failure> {
    let fields = GATHERED.map(|name| match name {
        "year" => GatherField::new(name).or(Value::Int32(0)),
        _ => GatherField::new(name),
    });
    Ok(movies.plan_gather(&fields, Conversion::Lossy)?)
}

/// Gathers a row per movie, a column per field.
pub fn gather(
    movies: &Reader,
    plan: &GatherPlan<f64>,
    keys: &[i64],
    matrix: &mut [f64],
) -> Result<(), Failure> {
    let mut gather_out = GatherOut::values(matrix);
    Ok(movies.read_local(None, |view| view.gather(plan, keys, &mut gather_out))?)
}

/// Returns the next number of a repeatable sequence (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
