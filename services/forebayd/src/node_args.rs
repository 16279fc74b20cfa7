//! Arguments and helpers that the subcommands of a running node share.

use std::io::Write;
use std::time::Duration;

use clap::builder::{StringValueParser, TypedValueParser};
use forebay_core::{Error, Result};
use forebay_wire::endpoint::endpoint_of;
use forebay_wire::status::error_of_status;
use tonic::transport::Channel;

const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// The address of a node.
#[derive(clap::Args)]
pub(crate) struct NodeArgs {
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
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub node: NodeArgs,
    /// Name of the store.
    #[arg(long)]
    pub store: String,
}

/// Output format of rows and events.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// A JSON object per row, on a line of its own.
    Json,
    /// CSV with a header line.
    Csv,
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
    let wrong = || Error::invalid_argument(format!("`{node}` is not an address; give HOST:PORT"));
    let endpoint = endpoint_of(node).ok_or_else(wrong)?;
    Ok(endpoint.connect_timeout(CONNECT_WAIT).connect_lazy())
}

/// Converts a node's error status; returns `Unsupported` with `advice` if the node does not serve
/// such requests.
pub(crate) fn map_status(status: tonic::Status, advice: &str) -> Error {
    match status.code() {
        tonic::Code::Unimplemented => Error::unsupported(advice),
        _ => error_of_status(&status),
    }
}

/// Parses hex digits into bytes.
///
/// # Errors
/// `InvalidArgument` for another text.
pub(crate) fn parse_hex(digits: &str) -> Result<Vec<u8>> {
    hex::decode(digits).map_err(|_| {
        Error::invalid_argument(format!(
            "`{digits}` is not an even number of hex digits; give two digits for each byte"
        ))
    })
}

/// Prints a line; ignores a closed stdout.
pub(crate) fn print(line: String) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::{address, parse_hex};

    #[test]
    fn address_accepts_the_printed_url_of_a_node() {
        for text in ["127.0.0.1:7070", "http://127.0.0.1:7070", "http://127.0.0.1:7070/"] {
            assert_eq!(address(text), "127.0.0.1:7070");
        }
    }

    #[test]
    fn hex_digits_parse_to_bytes() {
        assert_eq!(parse_hex("00ff7f").unwrap(), [0, 255, 127]);
        for text in ["0", "0g", "00é"] {
            assert!(parse_hex(text).is_err(), "{text}");
        }
    }
}
