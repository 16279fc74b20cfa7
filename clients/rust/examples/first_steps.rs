//! The first steps of the README: one write, one read in this process. Run `make dev` in one
//! terminal and this program in another.

use std::time::Duration;

use forebay::schema::{FieldType, KeyType, StoreSpec};
use forebay::{Client, ClientOptions, ErrorCode, Reader, ReaderOptions};

#[tokio::main]
async fn main() -> forebay::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7070".to_owned());

    let client = Client::connect(&address, ClientOptions::default()).await?;
    let spec = StoreSpec::documents("users", KeyType::String)
        .partitions(4)
        .field("age", FieldType::INT32)
        .field("visits", FieldType::INT64);
    let users = match client.create_store(&spec).await {
        Err(error) if error.code() == ErrorCode::Conflict => client.store("users").await?,
        created => created?,
    };
    let written = users.upsert("ada").set("age", 36).increment("visits", 1).send().await?;

    // From here on the only traffic is the change stream that the reader follows.
    let reader = Reader::open(&address, ReaderOptions::new("users")).await?;
    reader.await_ready(Duration::from_secs(10)).await?;
    reader.await_token(&written.token, Duration::from_secs(10)).await?;
    let visits = reader.field_as("visits", FieldType::INT64)?;
    let count = reader.get_i64(&visits, "ada", 0)?;
    println!("ada has visited {count} time(s)");
    Ok(())
}
