//! Status of a node's replicas: lag, and readiness as load balancers query it.

use std::sync::Arc;
use std::time::Duration;

use forebay::ErrorCode;
use forebay::schema::{KeyType, StoreSpec};
use forebay_core::clock::SystemClock;
use forebay_log::{ChangeLog, MemoryLog};
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::replicator_client::ReplicatorClient;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::INT64;
use crate::served_node::ServedNode;

const LONG: Duration = Duration::from_secs(60);

/// Waits until the node reports this status of a service.
async fn becomes(address: &str, service: &str, wanted: ServingStatus) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    let wait = async {
        loop {
            let request = HealthCheckRequest { service: service.to_owned() };
            if health.check(request).await.unwrap().into_inner().status() == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let became = tokio::time::timeout(LONG, wait).await;
    assert!(became.is_ok(), "{service:?} is not {wanted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_is_ready_while_its_shards_answer() {
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let data = tempfile::tempdir().unwrap();
    let served = ServedNode::start(&log, data.path()).await;
    let ready = "forebay.v1.Shards";
    becomes(&served.address, "", ServingStatus::Serving).await;
    becomes(&served.address, ready, ServingStatus::Serving).await;

    // A file blocks the folder of the shards.
    let folder = data.path().join("shards");
    std::fs::write(&folder, b"in the way").unwrap();
    let spec = StoreSpec::documents("users", KeyType::Int64).partitions(2).field("count", INT64);
    let store = served.client().await.create_store(&spec).await.unwrap();
    let url = format!("http://{}", served.address);
    let mut replicator = ReplicatorClient::connect(url).await.unwrap();
    let mut status = async |store: &str| {
        let answer = replicator.get_status(v1::GetStatusRequest { store: store.to_owned() }).await;
        answer.map(tonic::Response::into_inner).map_err(|status| error_of_status(&status))
    };
    becomes(&served.address, ready, ServingStatus::NotServing).await;
    becomes(&served.address, "", ServingStatus::Serving).await;
    let told = status("users").await.unwrap();
    assert!(!told.is_ready && told.replicas.is_empty(), "{told:?}");

    std::fs::remove_file(&folder).unwrap();
    becomes(&served.address, ready, ServingStatus::Serving).await;
    let token = store.upsert(1).set("count", 1).send().await.unwrap().token;
    let read = forebay::reads::ReadOptions::after(token, LONG);
    store.ordered().unwrap().get(&read, 1).await.unwrap();
    let told = status("users").await.unwrap();
    assert!(told.is_ready && told.replicas.len() == 2, "{told:?}");
    let caught_up = told.replicas.iter().find(|at| at.position.is_some_and(|it| it.offset > 0));
    let caught_up = caught_up.expect("one has applied an entry");
    assert_eq!((caught_up.phase.as_str(), caught_up.last_error.clone()), ("serving", None));
    assert!(caught_up.log_id.is_some() && caught_up.age_ms.is_some(), "{caught_up:?}");
    assert_eq!(caught_up.end_offset - caught_up.offset_applied, caught_up.lag_records);
    let none = status("nobody").await.unwrap_err();
    assert_eq!(none.code(), ErrorCode::NotFound);
}
