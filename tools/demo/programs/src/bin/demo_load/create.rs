//! Definitions of the demo: the stream of ratings, the store of movies, the views, and a separate
//! stream, store and view for measuring freshness.

use forebay::Client;
use forebay::schema::{FieldType, KeyType, ScalarType, StoreSpec};
use forebay_demo::{Failure, say};
use forebay_wire::v1;
use forebay_wire::v1::writer_client::WriterClient;
use serde_json::json;

use crate::ratings::{Rating, genre_names};

const PARTITIONS: u32 = 4;

/// Aggregates per movie. The view has no windows: the ratings are decades old, and these aggregates
/// cover all time.
const MOVIE_RATINGS: &str = "\
apiVersion: forebay/v1
kind: FeatureView
name: movie_ratings
source: ratings
entity: [movie]
features:
  rating_count: {count: '*'}
  rating_sum: {sum: rating}
  rating_min: {min: rating}
  rating_max: {max: rating}
  last_rated: {max: rated_at}
  high_count: {count: high}
  low_count: {count: low}
materialize:
  store: movies
  interval: 50ms
";

/// Aggregates per user, with a count per genre. The last time is the time of the event that arrived
/// last, so it is right only if the events of a user arrive in order.
const USER_RATINGS: &str = "\
apiVersion: forebay/v1
kind: FeatureView
name: user_ratings
source: ratings
entity: [key]
materialize:
  store: users
  interval: 50ms
features:
  rating_count: {count: '*'}
  rating_sum: {sum: rating}
  last_rated: {last: rated_at}
";

/// View for measuring the freshness of features; it materializes as often as a view can.
const PULSE_COUNTS: &str = "\
apiVersion: forebay/v1
kind: FeatureView
name: pulse_counts
source: pulses
entity: [key]
features:
  pulse_count: {count: '*'}
materialize:
  store: pulse_values
  interval: 10ms
";

/// Creates the streams and the stores of documents, then the views, which create the stores that
/// contain nothing but their values. Prints the names.
pub async fn create(client: &Client, address: &str, ratings: &[Rating]) -> Result<(), Failure> {
    let scalar = FieldType::Scalar;
    let genres = genre_names(ratings);
    let movies = StoreSpec::documents("movies", KeyType::Int64)
        .partitions(PARTITIONS)
        .field("title", scalar(ScalarType::String))
        .field("year", scalar(ScalarType::Int32))
        .field("genres", FieldType::List(ScalarType::String));
    let probes = StoreSpec::documents("probes", KeyType::Int64)
        .partitions(PARTITIONS)
        .field("value", scalar(ScalarType::Int64));
    // The stream has no event time: an event happens when the log appends it.
    let mut events = StoreSpec::stream("ratings", KeyType::Int64)
        .partitions(PARTITIONS)
        .field("movie", scalar(ScalarType::Int64))
        .field("rating", scalar(ScalarType::Float64))
        .field("rated_at", scalar(ScalarType::Timestamp))
        .field("high", scalar(ScalarType::Bool))
        .field("low", scalar(ScalarType::Bool));
    for genre in &genres {
        events = events.field(genre, scalar(ScalarType::Bool));
    }
    let pulses = StoreSpec::stream("pulses", KeyType::Int64).partitions(PARTITIONS);
    for spec in [&movies, &probes, &events, &pulses] {
        client.create_store(spec).await?;
    }
    let count = |genre: &String| format!("  {genre}: {{count: {genre}}}\n");
    let user_ratings = USER_RATINGS.to_owned() + &genres.iter().map(count).collect::<String>();
    let mut writer = WriterClient::connect(address.to_owned()).await?;
    for declaration in [MOVIE_RATINGS.to_owned(), user_ratings, PULSE_COUNTS.to_owned()] {
        writer
            .apply_view(v1::ApplyViewRequest { declaration, dry_run: false, first_line: 1 })
            .await?;
    }
    let stores = ["movies", "probes", "ratings", "pulses", "users", "pulse_values"];
    let views = ["movie_ratings", "user_ratings", "pulse_counts"];
    say("created", json!({ "stores": stores, "views": views }))?;
    Ok(())
}
