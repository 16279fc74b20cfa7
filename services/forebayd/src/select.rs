//! `forebayd select`: prints retained events of a stream, from a running node.

mod text;

use forebay_core::schema::{Definition, Field};
use forebay_core::{Error, Result};
use forebay_wire::v1;
use forebay_wire::v1::events_client::EventsClient;
use forebay_wire::v1::select_events_request::{self, Between, Equal};
use forebay_wire::v1::writer_client::WriterClient;

use crate::node_args::{self, NodeArgs, OutputFormat, channel, print};

/// Maximum size of an answer in bytes: the selected events and their description.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Arguments of `select`.
#[derive(clap::Args)]
pub(crate) struct SelectSettings {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    by: BySettings,
    /// Print events that happened at this time or later: RFC 3339, or microseconds since the Unix
    /// epoch.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = text::time_of)]
    start: Option<i64>,
    /// Print events that happened before this time.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = text::time_of)]
    end: Option<i64>,
    /// Columns to print, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_name = "COLUMN")]
    columns: Vec<String>,
    /// Scalar column to sort by [default: event time].
    #[arg(long, value_name = "COLUMN")]
    order_by: Option<String>,
    /// Sort in descending order.
    #[arg(long)]
    descending: bool,
    /// Maximum number of events to print, up to 10,000.
    #[arg(long, default_value_t = 1_000, value_name = "EVENTS")]
    limit: u32,
    /// Output format.
    #[arg(long, value_enum, default_value_t = OutputFormat::Json)]
    format: OutputFormat,
    /// Name of the stream.
    stream: String,
}

/// Lookup of the events; by event time alone if none is given. Bytes are hex digits.
#[derive(clap::Args)]
#[group(multiple = false)]
struct BySettings {
    /// Print events with this key.
    #[arg(long, allow_negative_numbers = true)]
    key: Option<String>,
    /// Print events with this value in an indexed column.
    #[arg(long, value_name = "COLUMN=VALUE")]
    equal: Option<String>,
    /// Print events whose value in a range-indexed column is from START up to END; either bound may
    /// be omitted.
    #[arg(long, value_name = "COLUMN=START..END")]
    between: Option<String>,
}

/// Selects events and prints them.
///
/// # Errors
/// `NotFound` for an unknown stream or column; `InvalidArgument` for a value that is not of the
/// column's type; else as the node's answer.
pub(crate) fn run(settings: SelectSettings) -> Result<()> {
    forebay_runtime::run(select(settings))
}

fn map_status(status: tonic::Status) -> Error {
    node_args::map_status(
        status,
        "the node does not offer selects; upgrade the node, or name another one with --node",
    )
}

async fn select(settings: SelectSettings) -> Result<()> {
    let way = channel(&settings.node.address)?;
    let describe = v1::DescribeStoreRequest { name: settings.stream.clone(), version: 0 };
    let described = WriterClient::new(way.clone()).describe_store(describe).await;
    let definition = described.map_err(map_status)?.into_inner().definition.unwrap_or_default();
    let definition = Definition::try_from(definition)?;
    let format = settings.format;
    let request = settings.request(&definition);
    let request = request.map_err(|error| error.with_store(&definition.name))?;
    let mut events = EventsClient::new(way).max_decoding_message_size(ANSWER_BYTES_MAX);
    let answer = events.select_events(request).await.map_err(map_status)?.into_inner();
    let lines = match format {
        OutputFormat::Json => text::json(answer, definition.key_type),
        OutputFormat::Csv => text::csv(answer, definition.key_type),
    };
    lines?.into_iter().for_each(print);
    Ok(())
}

impl SelectSettings {
    fn request(self, definition: &Definition) -> Result<v1::SelectEventsRequest> {
        Ok(v1::SelectEventsRequest {
            by: self.by.message(definition)?,
            stream: self.stream,
            start_us: self.start,
            end_us: self.end,
            columns: self.columns,
            order_by: self.order_by,
            is_descending: self.descending,
            limit: self.limit,
            read: None,
            partitions: Vec::new(),
        })
    }
}

impl BySettings {
    fn message(&self, definition: &Definition) -> Result<Option<select_events_request::By>> {
        if let Some(key) = &self.key {
            let key = text::key_of(key, definition.key_type)?;
            return Ok(Some(select_events_request::By::Key(key.into())));
        }
        if let Some(equal) = &self.equal {
            let (column, value) = named(equal, definition)?;
            let value = Some(text::value_of(value, column)?);
            let equal = Equal { column: column.name.clone(), value };
            return Ok(Some(select_events_request::By::Equal(equal)));
        }
        let Some(between) = &self.between else { return Ok(None) };
        let (column, range) = named(between, definition)?;
        let (start, end) = range.split_once("..").ok_or_else(|| {
            let message = format!("`{range}` is not a range; write START..END");
            Error::invalid_argument(message).with_field(&column.name)
        })?;
        let bound =
            |text: &str| (!text.is_empty()).then(|| text::value_of(text, column)).transpose();
        let (start, end) = (bound(start)?, bound(end)?);
        let column = column.name.clone();
        Ok(Some(select_events_request::By::Between(Between { column, start, end })))
    }
}

/// Returns the column named before `=`, and the text after it.
fn named<'t, 'd>(text: &'t str, definition: &'d Definition) -> Result<(&'d Field, &'t str)> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        Error::invalid_argument(format!("`{text}` names no column; write COLUMN=VALUE"))
    })?;
    let unknown = || {
        Error::not_found("the stream has no such column; describe the stream for its columns")
            .with_field(name)
    };
    Ok((definition.field(name).ok_or_else(unknown)?, value))
}
