//! The readers of the demo's stores.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::writes::Token;
use forebay::{Client, Reader, ReaderOptions};
use forebay_demo::Failure;

const READY_WAIT: Duration = Duration::from_secs(30);
const TOKEN_WAIT: Duration = Duration::from_secs(60);

/// The readers of this process.
pub struct Readers {
    /// Reader of the movies.
    pub movies: Reader,
    /// Reader of the users.
    pub users: Reader,
    /// Reader of the probes.
    pub probes: Reader,
}

impl Readers {
    /// Opens a reader of each store, and waits until all are ready.
    pub async fn open(client: &Client) -> Result<Self, Failure> {
        let mut readers = Vec::new();
        for store in ["movies", "users", "probes"] {
            readers.push(client.reader(ReaderOptions::new(store)).await?);
        }
        for reader in &readers {
            reader.await_ready(READY_WAIT).await?;
        }
        let [movies, users, probes] =
            readers.try_into().map_err(|_| "a store has no reader; open one per store")?;
        Ok(Self { movies, users, probes })
    }

    /// Waits until this process has applied everything that the load has written.
    pub async fn await_tokens(&self, tokens: &BTreeMap<String, String>) -> Result<(), Failure> {
        for (store, reader) in [("movies", &self.movies), ("users", &self.users)] {
            let token = tokens.get(store).ok_or("finish names no token of a store")?;
            let token = Token::decode(&hex::decode(token)?)?;
            reader.await_token(&token, TOKEN_WAIT).await?;
        }
        Ok(())
    }
}
