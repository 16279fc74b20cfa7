//! What all verbs share that ask a running node for something about a store.

use std::io::Write;
use std::time::Duration;

use clap::builder::{StringValueParser, TypedValueParser};
use forebay_core::{Error, Result};
use forebay_wire::status::error_of_status;
use tonic::transport::{Channel, Endpoint};

const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Who is asked.
#[derive(clap::Args)]
pub(crate) struct NodeAt {
    /// A running node, or the service that answers this and runs by itself, such as
    /// `forebay-snapshot`.
    #[arg(
        long = "node",
        default_value = "127.0.0.1:7070",
        value_name = "HOST:PORT",
        value_parser = address_parser(),
    )]
    pub address: String,
}

/// A store, and who is asked about it.
#[derive(clap::Args)]
pub(crate) struct StoreAt {
    #[command(flatten)]
    pub node: NodeAt,
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

/// The bytes that hex digits stand for.
///
/// # Errors
/// `InvalidArgument` for another text.
pub(crate) fn bytes_of(digits: &str) -> Result<Vec<u8>> {
    let wrong = || Error::invalid_argument(format!("`{digits}` is no even number of hex digits"));
    let byte = |place: usize| {
        let pair = digits.get(place..place + 2).ok_or_else(wrong)?;
        u8::from_str_radix(pair, 16).map_err(|_| wrong())
    };
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// The hex digits of bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A closed stdout is no reason to fail.
pub(crate) fn print(line: String) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::{address, bytes_of, hex};

    #[test]
    fn the_address_that_a_node_tells_is_taken_as_it_is() {
        for text in ["127.0.0.1:7070", "http://127.0.0.1:7070", "http://127.0.0.1:7070/"] {
            assert_eq!(address(text), "127.0.0.1:7070");
        }
    }

    #[test]
    fn hex_digits_stand_for_bytes() {
        assert_eq!(bytes_of("00ff7f").unwrap(), [0, 255, 127]);
        assert_eq!(hex(&[0, 255, 127]), "00ff7f");
        for text in ["0", "0g", "00é"] {
            assert!(bytes_of(text).is_err(), "{text}");
        }
    }
}
