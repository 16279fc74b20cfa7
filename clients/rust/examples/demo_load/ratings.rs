//! The ratings, the stores that they are folded into, and the change that each rating makes.

use std::collections::BTreeSet;
use std::path::Path;

use forebay::{
    Client, FieldSpec, FieldType, KeyType, ScalarType, Store, StoreSpec, Timestamp, Value, Write,
};
use serde::Deserialize;

use crate::demo::Failure;

const PARTITIONS: u32 = 4;
const NO_GENRES: &str = "(no genres listed)";
const HIGH_RATING: f64 = 4.0;
const LOW_RATING: f64 = 2.0;

/// One rating, as a line of the file has it.
#[derive(Deserialize)]
pub struct Rating {
    /// Who rated.
    pub user: i64,
    /// What was rated.
    pub movie: i64,
    rating: f64,
    time_s: i64,
    title: Option<String>,
    year: Option<i32>,
    genres: String,
}

impl Rating {
    fn genres(&self) -> Vec<&str> {
        match self.genres.as_str() {
            NO_GENRES => Vec::new(),
            genres => genres.split('|').collect(),
        }
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_micros(self.time_s * 1_000_000)
    }

    /// What the rating changes of its movie. A title or year that is missing stays absent.
    pub fn of_movie(&self, movies: &Store) -> Write {
        let mut write = movies
            .upsert(self.movie)
            .set("genres", self.genres())
            .increment("rating_count", 1)
            .increment("rating_sum", self.rating)
            .min("rating_min", self.rating as f32)
            .max("rating_max", self.rating as f32)
            .max("last_rated", self.time());
        if let Some(title) = &self.title {
            write = write.set("title", title);
        }
        if let Some(year) = self.year {
            write = write.set("year", year);
        }
        if self.rating >= HIGH_RATING {
            write = write.increment("high_count", 1);
        }
        if self.rating <= LOW_RATING {
            write = write.increment("low_count", 1);
        }
        write
    }

    /// What the rating changes of its user. The last time is set, so it is right only if the
    /// changes of a user arrive in their order.
    pub fn of_user(&self, users: &Store) -> Write {
        let write = users
            .upsert(self.user)
            .increment("rating_count", 1)
            .increment("rating_sum", self.rating)
            .set("last_rated", self.time());
        let count = |write: Write, genre| write.increment(&genre_field(genre), 1);
        self.genres().into_iter().fold(write, count)
    }

    /// A change that no rating asks for.
    pub fn planted(&self, movies: &Store) -> Write {
        movies.upsert(self.movie).increment("rating_sum", 0.5)
    }
}

fn genre_field(genre: &str) -> String {
    format!("genre_{}", genre.to_lowercase().replace('-', "_"))
}

/// Reads the whole file.
pub fn read_ratings(path: &Path) -> Result<Vec<Rating>, Failure> {
    let mut reader = csv::Reader::from_path(path)?;
    let ratings: Vec<Rating> = reader.deserialize().collect::<Result<_, _>>()?;
    if ratings.is_empty() {
        return Err(format!("{} holds no rating", path.display()).into());
    }
    Ok(ratings)
}

/// Creates the stores; a user has one count per genre that occurs.
pub async fn create_stores(
    client: &Client,
    ratings: &[Rating],
) -> Result<Vec<&'static str>, Failure> {
    use ScalarType::{Float32, Float64, Int32, Int64, Timestamp};
    let scalar = FieldType::Scalar;
    let mut movies = StoreSpec::documents("movies", KeyType::Int64, PARTITIONS)
        .field("title", scalar(ScalarType::String))
        .field("year", scalar(Int32))
        .field("genres", FieldType::List(ScalarType::String))
        .field("rating_count", scalar(Int64))
        .field("rating_sum", scalar(Float64))
        .field("rating_min", scalar(Float32))
        .field("rating_max", scalar(Float32))
        .field("last_rated", scalar(Timestamp));
    // What a gather writes for a movie that nobody rated so.
    for name in ["high_count", "low_count"] {
        let default = Some(Value::Int64(0));
        movies.fields.push(FieldSpec { default, ..FieldSpec::new(name, scalar(Int64)) });
    }
    let mut users = StoreSpec::documents("users", KeyType::Int64, PARTITIONS)
        .field("rating_count", scalar(Int64))
        .field("rating_sum", scalar(Float64))
        .field("last_rated", scalar(Timestamp));
    let genres: BTreeSet<&str> = ratings.iter().flat_map(Rating::genres).collect();
    for genre in genres {
        users = users.field(genre_field(genre), scalar(Int64));
    }
    let probes =
        StoreSpec::documents("probes", KeyType::Int64, PARTITIONS).field("value", scalar(Int64));
    for spec in [movies, users, probes] {
        client.create_store(&spec).await?;
    }
    Ok(vec!["movies", "users", "probes"])
}
