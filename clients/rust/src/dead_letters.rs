//! Dead letters: copies of the records that every replica of a store skips.

use forebay_core::Result;
use forebay_core::dead_letter::DeadLetter;
use forebay_core::id::PartitionId;
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_wire::v1;
use forebay_wire::v1::replicator_client::ReplicatorClient;
use futures::future::BoxFuture;

use crate::client::Client;
use crate::connection::Connection;

/// Some dead letters of one partition, and the cursor of the next page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadLetterPage {
    /// The letters, in the order of the partition's log.
    pub letters: Vec<DeadLetter>,
    /// Cursor to pass for the next page, which also finds letters that are added later.
    pub cursor: Vec<u8>,
}

impl Client {
    /// Returns a page of a partition's dead letters, after this cursor; an empty cursor starts at
    /// the oldest retained letter. An empty page means that there are no later letters yet.
    ///
    /// ```no_run
    /// use forebay::Client;
    /// use forebay::schema::PartitionId;
    /// # async fn example(client: Client) -> forebay::Result<()> {
    /// let mut page = client.dead_letters("users", PartitionId(0), &[], 100).await?;
    /// while !page.letters.is_empty() {
    ///     for letter in &page.letters {
    ///         println!("offset {}: {}", letter.offset, letter.reason);
    ///     }
    ///     page = client.dead_letters("users", PartitionId(0), &page.cursor, 100).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - `NotFound`: no store has this name.
    /// - `InvalidArgument`: the store does not have the partition, or no page has returned the
    ///   cursor.
    /// - `TokenLost`: the log of the cursor is gone.
    /// - `Unavailable`: no service answers in time.
    pub async fn dead_letters(
        &self,
        store: &str,
        partition: PartitionId,
        cursor: &[u8],
        letters_max: u32,
    ) -> Result<DeadLetterPage> {
        let message = v1::ListDeadLettersRequest {
            store: store.to_owned(),
            partition: partition.0,
            cursor: cursor.to_vec().into(),
            letters_max,
        };
        let page = list(self.connection(), message).await?;
        let letters = page.letters.into_iter().map(TryInto::try_into);
        Ok(DeadLetterPage { letters: letters.collect::<Result<_>>()?, cursor: page.cursor.into() })
    }
}

fn list(
    connection: &Connection,
    message: v1::ListDeadLettersRequest,
) -> BoxFuture<'_, Result<v1::ListDeadLettersResponse>> {
    let rpc =
        ReplicatorClient::new(connection.channel()).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Box::pin(async move {
        let call = async move |_, message| rpc.clone().list_dead_letters(message).await;
        connection.read(message, call).await
    })
}
