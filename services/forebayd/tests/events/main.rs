//! The events of a node's streams, with the node as a process: selected by all lookups and orders,
//! over kills and alterations, for as long as they are retained; queried in SQL, and exported.

#[path = "../daemon/mod.rs"]
mod daemon;
mod event_queries;
mod event_retention;
mod event_selects;
mod model;
mod select_refusals;

use std::path::Path;
use std::time::Duration;

use forebay::schema::{
    ColumnIndex, ColumnRules, FieldSpec, FieldType, KeyType, ScalarType, StoreSpec, StreamSpec,
};
use forebay::writes::Token;
use forebay::{Client, ClientOptions};
use forebay_wire::v1;
use forebay_wire::v1::events_client::EventsClient;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::daemon::{Daemon, LONG};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Folder of a node.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn data(&self) -> &Path {
        self.0.path()
    }

    fn start(&self, more: &[&str]) -> Daemon {
        let data = ["--data-dir", self.data().to_str().unwrap()];
        Daemon::start(&[&data, more].concat(), "127.0.0.1:0")
    }
}

async fn client(address: &str) -> Client {
    let options = ClientOptions::default().deadline(LONG);
    Client::connect(address, options).await.unwrap()
}

fn scalar(scalar: ScalarType) -> FieldType {
    FieldType::Scalar(scalar)
}

fn column(name: &str, of: ScalarType, index: Option<ColumnIndex>) -> FieldSpec {
    let rules = ColumnRules { index, ..ColumnRules::default() };
    FieldSpec { rules, ..FieldSpec::new(name, scalar(of)) }
}

/// Returns the definition of a stream of orders by user: a unique number, a time, a city with an
/// exact index, a price and a weight with range indexes, and a note without an index.
fn orders() -> StoreSpec {
    use ColumnIndex::{Exact, Range};
    let mut spec = StoreSpec::stream("orders", KeyType::String).partitions(3);
    spec.fields = vec![
        column("n", ScalarType::Int64, None),
        column("at", ScalarType::Timestamp, None),
        column("city", ScalarType::String, Some(Exact)),
        column("price", ScalarType::Int32, Some(Range)),
        column("weight", ScalarType::Float64, Some(Range)),
        column("note", ScalarType::String, None),
    ];
    spec.stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    spec
}

/// Selects events at a node.
async fn select(
    address: &str,
    ask: &v1::SelectEventsRequest,
) -> Result<v1::SelectEventsResponse, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let channel: Channel = endpoint.connect_lazy();
    let mut events = EventsClient::new(channel).max_decoding_message_size(32 << 20);
    let wait = async {
        loop {
            let answer = events.select_events(ask.clone()).await;
            match answer {
                // The stream has just been opened, or is about to be.
                Err(status) if status.code() == tonic::Code::Unavailable => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                answer => return answer.map(tonic::Response::into_inner),
            }
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the events stay unavailable")
}

fn all_of(stream: &str) -> v1::SelectEventsRequest {
    v1::SelectEventsRequest { stream: stream.to_owned(), limit: 10_000, ..Default::default() }
}

fn after(token: &Token) -> Option<v1::ReadOptions> {
    let wait = v1::read_options::Wait::AfterToken(token.encode());
    Some(v1::ReadOptions { wait: Some(wait), wait_ms: 30_000, age_ms_max: None })
}
