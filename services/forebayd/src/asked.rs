//! What all verbs share that ask a running node for something about a store.

use std::io::Write;
use std::time::Duration;

use clap::builder::{StringValueParser, TypedValueParser};
use forebay_core::{Error, Result};
use forebay_wire::status::error_of_status;
use tonic::transport::{Channel, Endpoint};

const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// A store, and who is asked about it.
#[derive(clap::Args)]
pub(crate) struct StoreAt {
    /// A running node, or a `forebay-snapshot`.
    #[arg(
        long,
        default_value = "127.0.0.1:7070",
        value_name = "HOST:PORT",
        value_parser = address_parser(),
    )]
    pub node: String,
    /// The store.
    #[arg(long)]
    pub store: String,
}

/// Takes an address as `HOST:PORT`, or with `http://` before it, as a node that is ready tells it.
pub(crate) fn address_parser() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().map(|text| address(&text))
}

/// The `HOST:PORT` of such an address.
pub(crate) fn address(text: &str) -> String {
    text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/').to_owned()
}

/// The way to a node; it is gone once a request is made.
///
/// # Errors
/// `InvalidArgument` for what is no address.
pub(crate) fn channel(node: &str) -> Result<Channel> {
    let wrong = |_| Error::invalid_argument(format!("`{node}` is no address; give HOST:PORT"));
    let endpoint = Endpoint::from_shared(format!("http://{node}")).map_err(wrong)?;
    Ok(endpoint.connect_timeout(CONNECT_WAIT).connect_lazy())
}

/// What a node answers instead; `advice` where it does not serve such requests.
pub(crate) fn told(status: tonic::Status, advice: &str) -> Error {
    match status.code() {
        tonic::Code::Unimplemented => Error::unsupported(advice),
        _ => error_of_status(&status),
    }
}

/// A closed stdout is no reason to fail.
pub(crate) fn print(line: String) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn the_address_that_a_node_tells_is_taken_as_it_is() {
        for text in ["127.0.0.1:7070", "http://127.0.0.1:7070", "http://127.0.0.1:7070/"] {
            assert_eq!(address(text), "127.0.0.1:7070");
        }
    }
}
