//! Connects to a service; an error says what to do if no service answers.

use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::entropy::Entropy;
use forebay_core::limits::{CLIENT_BACKOFF_MS_MAX, CLIENT_BACKOFF_MS_MIN};
use forebay_core::{Error, Result};
use forebay_log::remote::with_windows;
use tonic::transport::{Channel, Endpoint};

use crate::options::ClientOptions;

/// Returns the back-off between the attempts of one call.
pub(crate) fn new_backoff() -> Backoff {
    let (first, longest) = (CLIENT_BACKOFF_MS_MIN, CLIENT_BACKOFF_MS_MAX);
    Backoff::new(Duration::from_millis(first), Duration::from_millis(longest))
}

/// Connects to `host:port`, with or without `http://`; retries until the deadline.
///
/// # Errors
/// `InvalidArgument` for an invalid address, `Unavailable` if no service answers there.
pub(crate) async fn connect(
    endpoint: &str,
    options: &ClientOptions,
    entropy: &dyn Entropy,
) -> Result<Channel> {
    let address = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false => format!("http://{endpoint}"),
    };
    let endpoint = Endpoint::from_shared(address.clone()).map_err(|_| {
        Error::invalid_argument(
            "the address is not valid; give the address of a service as host:port",
        )
    })?;
    let endpoint = with_windows(endpoint)
        .connect_timeout(options.attempt)
        .http2_keep_alive_interval(options.attempt)
        .keep_alive_timeout(options.attempt)
        .keep_alive_while_idle(true);
    let mut backoff = new_backoff();
    let mut last = None;
    let attempts = async {
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(backoff.next_wait(entropy)).await;
        }
    };
    tokio::time::timeout(options.deadline, attempts).await.map_err(|_| {
        let why = last.as_ref().map_or("no answer".to_owned(), root_cause);
        Error::unavailable(format!(
            "no service answers at {address} ({why}); start `forebayd dev`, or correct the address"
        ))
    })
}

fn root_cause(error: &tonic::transport::Error) -> String {
    let first: &dyn std::error::Error = error;
    let chain = std::iter::successors(Some(first), |error| error.source());
    chain.last().map_or_else(|| error.to_string(), ToString::to_string)
}
