//! The ranking: the top movies for one user, from a gathered matrix.

use std::cmp::Reverse;

use forebay::Reader;
use forebay::schema::{FieldType, ScalarType, Value};
use forebay_demo::Failure;

use crate::dump::{Row, Rows};
use crate::measure::{GATHERED, gather, plan};
use crate::readers::Readers;

const CANDIDATES: usize = 500;
const TOP: usize = 10;
const PRIOR_RATINGS: f64 = 5.0;
const PRIOR_MEAN: f64 = 3.5;

/// A ranking for one user.
pub struct Ranking {
    /// The user with the most ratings.
    pub user: i64,
    /// The most rated movies.
    pub candidates: Vec<i64>,
    /// The best candidates with their scores, best first.
    pub top: Vec<(i64, f64)>,
}

/// Ranks the candidates. The score is a movie's mean rating, pulled to 3.5 if ratings are few,
/// times one plus the mean share of the user's ratings in the movie's genres. If scores are equal,
/// the smaller key is first.
pub fn rank(readers: &Readers, rows: &Rows) -> Result<Ranking, Failure> {
    let candidates = most_rated(&rows.movies, CANDIDATES);
    let user = *most_rated(&rows.users, 1).first().ok_or("there is no user")?;
    let plan = plan(&readers.movies)?;
    let mut matrix = vec![0.0; candidates.len() * plan.width()];
    gather(&readers.movies, &plan, &candidates, &mut matrix)?;
    let (count, sum) = (column("rating_count")?, column("rating_sum")?);
    let mut top = Vec::new();
    for (key, row) in candidates.iter().zip(matrix.chunks_exact(plan.width())) {
        let mean = (row[sum] + PRIOR_RATINGS * PRIOR_MEAN) / (row[count] + PRIOR_RATINGS);
        top.push((*key, mean * (1.0 + share(readers, user, *key)?)));
    }
    top.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    top.truncate(TOP);
    Ok(Ranking { user, candidates, top })
}

/// Returns the keys with the most ratings; of equal counts the smaller key is first.
fn most_rated(rows: &[Row], count: usize) -> Vec<i64> {
    let ratings = |row: &Row| row.fields.get("rating_count").and_then(serde_json::Value::as_i64);
    let mut keys: Vec<_> = rows.iter().map(|row| (Reverse(ratings(row)), row.key)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, key)| key).take(count).collect()
}

fn column(name: &str) -> Result<usize, Failure> {
    let place = GATHERED.iter().position(|field| *field == name);
    place.ok_or_else(|| format!("{name} is not gathered").into())
}

/// Returns the mean share of the user's ratings that fell to the movie's genres.
fn share(readers: &Readers, user: i64, movie: i64) -> Result<f64, Failure> {
    let handle = readers.movies.field_as("genres", FieldType::List(ScalarType::String))?;
    let genres = readers.movies.get_value(&handle, movie)?;
    let Some(Value::List(_, genres)) = genres.value() else {
        return Err("a movie without its list of genres".into());
    };
    let mut matched = 0;
    for genre in &genres {
        let Value::String(genre) = genre else { return Err("a genre is text".into()) };
        let field = format!("genre_{}", genre.to_lowercase().replace('-', "_"));
        matched += number(&readers.users, user, &field)?;
    }
    let ratings = number(&readers.users, user, "rating_count")?;
    Ok(matched as f64 / (ratings as f64 * genres.len().max(1) as f64))
}

/// Returns an integer field; 0 if absent.
fn number(reader: &Reader, key: i64, field: &str) -> Result<i64, Failure> {
    let handle = reader.field_as(field, FieldType::INT64)?;
    Ok(reader.get_i64(&handle, key, 0)?)
}
