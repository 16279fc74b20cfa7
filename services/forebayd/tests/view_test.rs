//! `forebayd view` as a process: feature views are applied from files, described, listed, dropped.

mod daemon;

use std::io::Write;
use std::process::{Command, Stdio};

use daemon::{Daemon, FOREBAYD, read_error};
use forebay::schema::{FieldType, KeyType, ScalarType, StoreSpec};
use forebay::{Client, ClientOptions};

const SPENDING: &str = "\
apiVersion: forebay/v1
kind: FeatureView
name: spending
source: orders
where: price > 0 and (device <> 'tv' or device is null)
joins:
  - store: users
    required: true
    columns:
      country: {field: country, default: nowhere}
entity: [country, key]
extra_columns: [weight]
allowed_lateness: 5m
windows:
  1h: {sliding: 1h, slide: 1m}
  ever: unbounded
features:
  orders: {count: '*'}
  price: {approx_quantile: price, q: [0.5, 0.99]}
materialize: {store: user_features, interval: 1s}
";
const DESCRIBED: &str = "\
view spending, version 1
source: orders
where: price > 0 and (device <> 'tv' or device is null)
join: users by key, required
  country: country, else 'nowhere'
entity: country, key
extra_columns: weight
window 1h: sliding 1h by 1m
window ever: unbounded
allowed_lateness: 5m
partitions: 4
materialize: to user_features, interval 1s, expiry_grace 30s
  position: spending_position
feature orders: count
  orders_1h: int64
  orders_ever: int64
feature price: approx_quantile of price, q [0.5, 0.99], k 100
  price_1h_p50: float64
  price_1h_p99: float64
  price_ever_p50: float64
  price_ever_p99: float64
";

const TOTALS: &str = "\
apiVersion: forebay/v1
kind: FeatureView
name: totals
source: orders
entity: [key]
features: {n: {count: '*'}}
";

async fn shop(daemon: &Daemon) {
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let scalar = FieldType::Scalar;
    let orders = StoreSpec::stream("orders", KeyType::String)
        .partitions(4)
        .field("price", scalar(ScalarType::Int64))
        .field("device", scalar(ScalarType::String))
        .field("weight", scalar(ScalarType::Float64));
    client.create_store(&orders).await.unwrap();
    let users = StoreSpec::documents("users", KeyType::String)
        .partitions(2)
        .field("country", scalar(ScalarType::String));
    client.create_store(&users).await.unwrap();
}

/// Returns the output of `forebayd view` with these arguments and this input.
fn view(daemon: &Daemon, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(FOREBAYD)
        .args(["view", arguments[0], "--node", &daemon.address])
        .args(&arguments[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error of `forebayd view` with these arguments.
fn refuses(daemon: &Daemon, arguments: &[&str]) -> String {
    let mut all = vec!["view", arguments[0], "--node", &daemon.address];
    all.extend(&arguments[1..]);
    read_error(&all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn view_is_applied_described_listed_and_dropped() {
    let data = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--data-dir", data.path().to_str().unwrap()], "127.0.0.1:0");
    shop(&daemon).await;
    let file = data.path().join("spending.yaml");
    let file = file.to_str().unwrap();
    let refuses = |arguments: &[&str]| refuses(&daemon, arguments);

    std::fs::write(file, SPENDING.replace("price, q", "prize, q")).unwrap();
    let error = refuses(&["apply", "-f", file]);
    assert!(error.contains("NotFound: document 1: line 19, column 3: "), "{error}");
    std::fs::write(file, SPENDING.replace("lateness: 5m", "lateness: soon")).unwrap();
    let error = refuses(&["apply", "-f", file]);
    assert!(error.contains("InvalidArgument: document 1: line 13, column 19: "), "{error}");
    assert!(refuses(&["apply", "--file", "not-there.yaml"]).contains("not-there.yaml"));
    assert_eq!(view(&daemon, &["list"], ""), "");

    std::fs::write(file, SPENDING).unwrap();
    let would = view(&daemon, &["apply", "--dry-run", "-f", file], "");
    assert_eq!(would, "would create spending, version 1\n");
    assert!(refuses(&["describe", "spending"]).contains("NotFound"));
    assert_eq!(view(&daemon, &["apply", "-f", file], ""), "created spending, version 1\n");
    assert_eq!(view(&daemon, &["apply", "-f", file], ""), "left as it was: spending, version 1\n");
    assert_eq!(view(&daemon, &["describe", "spending"], ""), DESCRIBED);

    let more = SPENDING.replace("features:\n", "features:\n  heavy: {max: weight}\n");
    let altered = view(&daemon, &["apply", "-f", "-"], &more);
    assert_eq!(altered, "altered spending, version 2\n");
    let described = view(&daemon, &["describe", "spending"], "");
    assert!(described.contains("\nfeature heavy: max of weight\n  heavy_1h: float64\n"));
    let listed = view(&daemon, &["list"], "");
    assert_eq!(listed, "spending  version 2  of orders  3 features\n");

    assert!(refuses(&["drop", "orders"]).contains("not a feature view"));
    assert_eq!(view(&daemon, &["drop", "spending"], ""), "dropped spending\n");
    assert_eq!(view(&daemon, &["list"], ""), "");
    assert!(refuses(&["drop", "spending"]).contains("NotFound"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_a_file_are_applied_in_order_if_all_are_valid() {
    let data = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--data-dir", data.path().to_str().unwrap()], "127.0.0.1:0");
    shop(&daemon).await;
    let file = data.path().join("views.yaml");
    let file = file.to_str().unwrap();
    let apply = ["apply", "-f", file];
    let write = |second: &str| std::fs::write(file, format!("{SPENDING}---\n{second}")).unwrap();

    write(&TOTALS.replace("kind: FeatureView", "kind: Store"));
    let error = refuses(&daemon, &apply);
    assert!(error.contains("InvalidArgument: document 2: line 23, column 7: "), "{error}");
    write(SPENDING);
    let error = refuses(&daemon, &apply);
    assert!(error.contains("document 1 declares the view `spending`, too"), "{error}");
    assert_eq!(view(&daemon, &["list"], ""), "", "an invalid document prevents all");

    write(TOTALS);
    let would = view(&daemon, &["apply", "--dry-run", "-f", file], "");
    assert_eq!(would, "would create spending, version 1\nwould create totals, version 1\n");
    assert_eq!(view(&daemon, &["list"], ""), "", "a dry run creates none");

    write(&TOTALS.replace("source: orders", "source: order"));
    let error = refuses(&daemon, &apply);
    assert!(error.contains("NotFound: document 2: line 25, column 9: "), "{error}");
    let listed = view(&daemon, &["list"], "");
    assert_eq!(listed, "spending  version 1  of orders  2 features\n");

    let totals = TOTALS.replace("source: orders", "source: order");
    let directive = format!("%YAML 1.2\n---\n{SPENDING}...\n%YAML 1.2\n---\n{totals}");
    std::fs::write(file, directive).unwrap();
    let error = refuses(&daemon, &apply);
    assert!(error.contains("NotFound: document 2: line 29, column 9: "), "{error}");

    write(&format!("# Nothing.\n---\n{TOTALS}"));
    let applied = view(&daemon, &apply, "");
    assert_eq!(applied, "left as it was: spending, version 1\ncreated totals, version 1\n");
}
