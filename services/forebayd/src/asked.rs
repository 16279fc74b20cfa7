//! Arguments and helpers that the subcommands of a running node share.

use std::io::Write;
use std::time::Duration;

use clap::builder::{StringValueParser, TypedValueParser};
use forebay_core::{Error, Result};
use forebay_wire::status::error_of_status;
use tonic::transport::{Channel, Endpoint};

const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// The address of a node.
#[derive(clap::Args)]
pub(crate) struct NodeAt {
    /// Address of a running node, or of the service that offers this command as a separate process,
    /// such as `forebay-snapshot`.
    #[arg(
        long = "node",
        default_value = "127.0.0.1:7070",
        value_name = "HOST:PORT",
        value_parser = address_parser(),
    )]
    pub address: String,
}

/// A store, and the address of a node that has it.
#[derive(clap::Args)]
pub(crate) struct StoreAt {
    #[command(flatten)]
    pub node: NodeAt,
    /// Name of the store.
    #[arg(long)]
    pub store: String,
}

/// Parses an address `HOST:PORT`, or `http://HOST:PORT` as a node prints it when it is ready.
pub(crate) fn address_parser() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().map(|text| address(&text))
}

/// Returns the `HOST:PORT` of such an address.
pub(crate) fn address(text: &str) -> String {
    text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/').to_owned()
}

/// Returns a channel to a node; connects at the first request.
///
/// # Errors
/// `InvalidArgument` if the address is invalid.
pub(crate) fn channel(node: &str) -> Result<Channel> {
    let wrong = |_| Error::invalid_argument(format!("`{node}` is not an address; give HOST:PORT"));
    let endpoint = Endpoint::from_shared(format!("http://{node}")).map_err(wrong)?;
    Ok(endpoint.connect_timeout(CONNECT_WAIT).connect_lazy())
}

/// Converts a node's error status; returns `Unsupported` with `advice` if the node does not serve
/// such requests.
pub(crate) fn told(status: tonic::Status, advice: &str) -> Error {
    match status.code() {
        tonic::Code::Unimplemented => Error::unsupported(advice),
        _ => error_of_status(&status),
    }
}

/// Parses hex digits into bytes.
///
/// # Errors
/// `InvalidArgument` for another text.
pub(crate) fn bytes_of(digits: &str) -> Result<Vec<u8>> {
    let wrong = || {
        Error::invalid_argument(format!(
            "`{digits}` is not an even number of hex digits; give two digits for each byte"
        ))
    };
    let byte = |place: usize| {
        let pair = digits.get(place..place + 2).ok_or_else(wrong)?;
        u8::from_str_radix(pair, 16).map_err(|_| wrong())
    };
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Formats bytes as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Prints a line; ignores a closed stdout.
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
