//! Ratings: the file, the event of each rating, and the document of its movie.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use forebay::Store;
use forebay::schema::Timestamp;
use forebay::writes::Write;
use forebay_demo::Failure;
use serde::Deserialize;

const NO_GENRES: &str = "(no genres listed)";
const HIGH_RATING: f64 = 4.0;
const LOW_RATING: f64 = 2.0;

/// A rating, as a line of the file has it.
#[derive(Deserialize)]
pub struct Rating {
    /// User who rated.
    pub user: i64,
    /// Movie that was rated.
    pub movie: i64,
    rating: f64,
    time_s: i64,
    title: Option<String>,
    year: Option<i32>,
    genres: String,
    /// Whether this is the first rating of its movie.
    #[serde(skip)]
    pub is_first: bool,
}

impl Rating {
    fn genres(&self) -> Vec<&str> {
        match self.genres.as_str() {
            NO_GENRES => Vec::new(),
            genres => genres.split('|').collect(),
        }
    }

    /// Returns the rating as an event. Columns of other genres have no value, so a count of such a
    /// column leaves the event out.
    pub fn event(&self, ratings: &Store) -> Write {
        let mut write = ratings
            .insert(self.user)
            .set("movie", self.movie)
            .set("rating", self.rating)
            .set("rated_at", Timestamp::from_micros(self.time_s * 1_000_000));
        if self.rating >= HIGH_RATING {
            write = write.set("high", true);
        }
        if self.rating <= LOW_RATING {
            write = write.set("low", true);
        }
        let set = |write: Write, genre| write.set(&genre_name(genre), true);
        self.genres().into_iter().fold(write, set)
    }

    /// Returns the document of the movie. A missing title or year stays absent.
    pub fn movie(&self, movies: &Store) -> Write {
        let mut write = movies.upsert(self.movie).set("genres", self.genres());
        if let Some(title) = &self.title {
            write = write.set("title", title);
        }
        if let Some(year) = self.year {
            write = write.set("year", year);
        }
        write
    }
}

/// Returns the column that marks a movie of this genre, which is also the field that counts it.
fn genre_name(genre: &str) -> String {
    format!("genre_{}", genre.to_lowercase().replace('-', "_"))
}

/// Returns the names of all genres that occur.
pub fn genre_names(ratings: &[Rating]) -> BTreeSet<String> {
    ratings.iter().flat_map(Rating::genres).map(genre_name).collect()
}

/// Reads the whole file.
pub fn read_ratings(path: &Path) -> Result<Vec<Rating>, Failure> {
    let mut reader = csv::Reader::from_path(path)?;
    let mut ratings: Vec<Rating> = reader.deserialize().collect::<Result<_, _>>()?;
    if ratings.is_empty() {
        return Err(format!("{} holds no rating", path.display()).into());
    }
    let mut pairs_seen = HashSet::new();
    for rating in &mut ratings {
        rating.is_first = pairs_seen.insert(rating.movie);
    }
    Ok(ratings)
}
