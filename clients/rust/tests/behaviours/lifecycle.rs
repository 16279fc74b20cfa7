//! Opening, closing, restarts and failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay::reads::{
    CheckpointOptions, Conversion, DocumentKey, FieldRead, GatherField, GatherOut, ReadOptions,
};
use forebay::{Client, ClientOptions, Error, ErrorCode, Reader, ReaderOptions, Result};
use forebay_core::clock::SystemClock;
use forebay_log::disk::RealDisk;
use forebay_log::{ChangeLog, EmbeddedLog, EmbeddedOptions};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::common::TestNode;
use crate::world::{
    INT32, INT64, PATIENCE, SOON, STRING, StoreFixture, after, assert_refused, client, client_of,
    document, endpoint, eventually, fields, int, keyed, keys, latest, memory_node, ready_reader,
    scalar, sent, value,
};

/// Proves that a reader may be closed twice; in Rust, dropping a client closes it.
pub async fn second_close_changes_nothing() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let options = || ReaderOptions::new(fixture.name());
    fixture.reader.begin_close();
    fixture.reader.begin_close();
    let clone = fixture.reader.clone();
    clone.begin_close();
    drop(clone);
    assert_refused(fixture.reader.get_document("k"), ErrorCode::Closed);
    let own_reader = Reader::open(&endpoint().await, options()).await.unwrap();
    own_reader.begin_close();
    drop(own_reader);
    let other = client().await;
    let reader = ready_reader(&other, options()).await;
    drop(other.clone());
    let token = sent(other.store(fixture.name()).await.unwrap().upsert("k").set("a", 1)).await;
    drop(other);
    // A reader outlives the client that opened it.
    assert!(document(&reader, &after(&token), "k").await.unwrap().is_some());
}

/// Proves the errors after a close; the compiler rejects calls on a client that was dropped.
pub async fn calls_after_close_are_closed() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let reader = &fixture.reader;
    let token = sent(fixture.store.upsert("k").set("a", 1)).await;
    assert!(fixture.after(&token, "k").await.is_some());
    let handle = reader.field_as("a", INT64).unwrap();
    let column = [GatherField::new("a")];
    let plan = reader.plan_gather::<i64>(&column, Conversion::Exact).unwrap();
    let (mut scan, partition) = (reader.scan(), reader.partition_of("k").unwrap());
    let position = token.positions[&partition].1;
    reader.begin_close();
    let mut cell = [0];
    let mut gather_out = GatherOut::values(&mut cell);
    let calls: [(&str, Result<()>); 16] = [
        ("get", reader.get_document("k").map(drop)),
        ("get one", value(reader, &handle, "k").map(drop)),
        ("get after a token", document(reader, &after(&token), "k").await.map(drop)),
        ("get the latest", document(reader, &latest(), "k").await.map(drop)),
        ("batch", reader.read_local(None, |view| view.get_many(&["k"][..], |_, _| Ok(())))),
        ("gather", reader.read_local(None, |view| view.gather(&plan, &["k"][..], &mut gather_out))),
        ("scan", reader.scan_next(&mut scan, None, 1, |_| Ok(())).map(drop)),
        ("wait", reader.wait(&ReadOptions::local(), &[]).await),
        ("wait until ready", reader.await_ready(PATIENCE).await),
        ("wait for a token", reader.await_token(&token, PATIENCE).await),
        ("wait for a position", reader.wait_applied(partition, position, PATIENCE).await),
        ("plan", reader.plan_gather::<i64>(&column, Conversion::Exact).map(drop)),
        ("field as a type", reader.field_as("a", INT64).map(drop)),
        ("field", reader.field("a").map(drop)),
        ("partition of", reader.partition_of("k").map(drop)),
        ("partitions of", reader.partitions_of(&["k"][..]).map(drop)),
    ];
    for (call, result) in calls {
        let Err(error) = result else { panic!("{call} answers") };
        assert_eq!(error.code(), ErrorCode::Closed, "{call}: {error}");
    }
    // Infallible calls report the last state of the reader, and that it is not ready for reads.
    assert!(!reader.is_ready() && !reader.status().is_ready);
}

pub async fn close_ends_concurrent_reads_with_answer_or_closed() {
    let fixture = StoreFixture::with([("a", INT64), ("s", STRING)]).await;
    let (store, reader, keys) = (&fixture.store, &fixture.reader, Arc::new(keys(200)));
    fixture.write_all(keys.iter().map(|key| store.upsert(key).set("a", 1).set("s", "x"))).await;
    assert_eq!(fixture.numbers(&keys[..], "a").await, [Some(1); 200]);
    let plan = reader.plan_gather::<i64>(&[GatherField::new("a")], Conversion::Exact).unwrap();
    let reads_done = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (reads, keys, plan) = (reader.clone(), keys.clone(), plan.clone());
        spawn_reads(&mut tasks, &reads_done, move || {
            let mut row = vec![0; keys.len()];
            let mut gather_out = GatherOut::values(&mut row);
            reads.read_local(None, |view| view.gather(&plan, &keys[..], &mut gather_out))
        });
        let reads = reader.clone();
        spawn_reads(&mut tasks, &reads_done, move || reads.get_document("k7").map(drop));
        let reads = reader.clone();
        spawn_reads(&mut tasks, &reads_done, move || {
            let mut scan = reads.scan();
            while reads.scan_next(&mut scan, None, 50, |_| Ok(()))? > 0 {}
            Ok(())
        });
        let (reads, reads_counted) = (reader.clone(), reads_done.clone());
        tasks.spawn(async move {
            loop {
                match reads.get_document_with(&latest(), "k7").await {
                    Ok(_) => reads_counted.fetch_add(1, Ordering::Relaxed),
                    Err(error) => return error,
                };
            }
        });
    }
    eventually("all read", async || reads_done.load(Ordering::Relaxed) > 1_000).await;
    reader.begin_close();
    while let Some(ending) = timeout(PATIENCE, tasks.join_next()).await.unwrap() {
        assert_eq!(ending.unwrap().code(), ErrorCode::Closed);
    }
}

/// Reads on a thread until the first error, which the thread returns.
fn spawn_reads(
    tasks: &mut tokio::task::JoinSet<Error>,
    reads_done: &Arc<AtomicU64>,
    mut read: impl FnMut() -> Result<()> + Send + 'static,
) {
    let reads_done = reads_done.clone();
    tasks.spawn_blocking(move || {
        loop {
            match read() {
                Ok(()) => reads_done.fetch_add(1, Ordering::Relaxed),
                Err(error) => return error,
            };
        }
    });
}

pub async fn reopened_reader_answers_as_before() {
    let fixture = StoreFixture::with([("a", INT64)]).await;
    let mut reader = fixture.reader.clone();
    for round in 0..3 {
        let token = sent(fixture.store.upsert(&format!("k{round}")).set("a", round)).await;
        for number in 0..=round {
            let found = document(&reader, &after(&token), &format!("k{number}")).await.unwrap();
            assert_eq!(found, Some(fields([("a", int(number))])), "round {round}");
        }
        reader.begin_close();
        sent(fixture.store.upsert("between").set("a", round)).await;
        reader = ready_reader(&fixture.client, ReaderOptions::new(fixture.name())).await;
        let a = reader.field_as("a", INT64).unwrap();
        assert_eq!(scalar(&reader, &a, "between").unwrap(), FieldRead::Value(round));
    }
}

pub async fn reader_restarts_from_its_checkpoints() {
    let fixture = StoreFixture::with([("n", INT64)]).await;
    let (store, keys) = (&fixture.store, keys(20));
    let increment_all = async || {
        fixture.write_all(keys.iter().map(|key| store.upsert(key).increment("n", 1))).await
    };
    let directory = tempfile::tempdir().unwrap();
    // The interval is so long that only the close writes checkpoints.
    let interval = 1_000 * PATIENCE;
    let checkpoint = CheckpointOptions::new(directory.path()).interval(interval);
    let options = ReaderOptions::new(fixture.name()).checkpoint(checkpoint);
    for round in 1..=3_u64 {
        let token = increment_all().await;
        let reader = ready_reader(&fixture.client, options.clone()).await;
        reader.await_token(&token, PATIENCE).await.unwrap();
        let n = reader.field_as("n", INT64).unwrap();
        for key in &keys {
            let expected = FieldRead::Value(2 * round as i64 - 1);
            assert_eq!(scalar(&reader, &n, key).unwrap(), expected, "round {round}");
        }
        // A second reader that may share the files does so; a reader that needs them exclusively is
        // refused.
        let second = ready_reader(&fixture.client, options.clone()).await;
        let a_count = scalar(&second, &n, &keys[0]).unwrap();
        assert_eq!(a_count, FieldRead::Value(2 * round as i64 - 1));
        assert!(second.status().partitions.iter().all(|at| at.counts.records_applied == 0));
        second.close(PATIENCE).await.unwrap();
        let mut unshared_options = options.clone();
        unshared_options.checkpoint.as_mut().unwrap().is_shared = false;
        assert_refused(fixture.client.reader(unshared_options).await, ErrorCode::Conflict);
        reader.close(PATIENCE).await.unwrap();
        let is_restart = u64::from(round > 1);
        for partition in reader.status().partitions {
            let counts = partition.counts;
            assert_eq!(counts.checkpoints.restored, is_restart, "round {round}");
            let is_all_read = counts.records_applied >= partition.offset_applied.0;
            assert_eq!(is_all_read, round == 1, "{counts:?}");
        }
        increment_all().await;
    }
}

pub async fn reader_survives_a_server_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().to_owned();
    let mut node = TestNode::start(None, move || open_log(EmbeddedOptions::new(&data_dir))).await;
    let spec = keyed(forebay::schema::KeyType::String, 2, [("n", INT64)]);
    let fixture = StoreFixture::create_at(&node.endpoint(), spec).await;
    let mut total = 0;
    for round in 0..3 {
        for _ in 0..20 {
            sent(fixture.store.upsert("k").increment("n", 1)).await;
            total += 1;
        }
        node.kill();
        // The write is sent while the node is down, and is resolved once the node is back.
        let store = fixture.store.clone();
        let sending = tokio::spawn(async move { sent(store.upsert("k").increment("n", 1)).await });
        node.restart().await;
        let token = timeout(PATIENCE, sending).await.unwrap().unwrap();
        total += 1;
        assert_eq!(fixture.after(&token, "k").await, Some(fields([("n", int(total))])), "{round}");
    }
    assert_eq!(fixture.latest("k").await, Some(fields([("n", int(total))])));
}

/// Opens the log of a directory, once the previous node has released it.
async fn open_log(options: EmbeddedOptions) -> Arc<dyn ChangeLog> {
    let opening = async {
        loop {
            let clock = Arc::new(SystemClock);
            match EmbeddedLog::open(Arc::new(RealDisk), clock, options.clone()).await {
                Ok(log) => return Arc::new(log),
                Err(error) if error.code() == ErrorCode::Conflict => {
                    tokio::time::sleep(SOON / 100).await;
                }
                Err(error) => panic!("open the log: {error}"),
            }
        }
    };
    timeout(PATIENCE, opening).await.expect("somebody holds the directory")
}

pub async fn many_threads_share_one_reader() {
    let fixture = StoreFixture::with([("a", INT64), ("b", INT64), ("s", STRING)]).await;
    let write = |number: i64| {
        let write = fixture.store.upsert("k").set("a", number).set("b", number);
        write.set("s", number.to_string())
    };
    let token = sent(write(0)).await;
    assert!(fixture.after(&token, "k").await.is_some());
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let (reader, stop) = (fixture.reader.clone(), stop.clone());
            tokio::task::spawn_blocking(move || read_whole(&reader, &stop))
        })
        .collect();
    let mut last = token;
    for number in 1..300 {
        last = sent(write(number)).await;
    }
    let found = fixture.after(&last, "k").await.unwrap();
    assert_eq!(found["a"], Some(int(299)));
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        assert!(timeout(PATIENCE, thread).await.unwrap().unwrap() > 0);
    }
}

/// Reads one document until stopped; returns the number of reads.
fn read_whole(reader: &Reader, stop: &AtomicBool) -> u64 {
    let (a, s) = (reader.field_as("a", INT64).unwrap(), reader.field_as("s", STRING).unwrap());
    let columns = [GatherField::new("a"), GatherField::new("b")];
    let plan = reader.plan_gather::<i64>(&columns, Conversion::Exact).unwrap();
    let (mut last, mut reads) = (0, 0);
    loop {
        let read = reader.read_local(None, |view| {
            let row = view.get("k")?.expect("it is never deleted");
            let (a, s) = (row.scalar::<i64>(&a)?.value(), row.str(&s)?.value());
            Ok((a.unwrap(), s.unwrap().parse::<i64>().unwrap()))
        });
        let (number, text) = read.unwrap();
        assert!(number == text && number >= last);
        let mut row = [0; 2];
        let mut gather_out = GatherOut::values(&mut row);
        reader.read_local(None, |view| view.gather(&plan, &["k"][..], &mut gather_out)).unwrap();
        assert!(row[0] == row[1] && row[0] >= number);
        (last, reads) = (row[0], reads + 1);
        if stop.load(Ordering::Relaxed) {
            return reads;
        }
    }
}

pub async fn unreachable_server_is_unavailable_in_time() {
    let hasty = || ClientOptions::default().deadline(SOON);
    // The port is taken, and no process listens there.
    let silent_socket = TcpSocket::new_v4().unwrap();
    silent_socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let silent_address = silent_socket.local_addr().unwrap().to_string();
    let client = timeout(PATIENCE, Client::connect(&silent_address, hasty())).await.unwrap();
    assert_refused(client, ErrorCode::Unavailable);
    let options = ReaderOptions::new("store").open_timeout(SOON);
    let reader = timeout(PATIENCE, Reader::open(&silent_address, options)).await.unwrap();
    assert_refused(reader, ErrorCode::Unavailable);
    let client = Client::connect("no address at all", hasty()).await;
    assert_refused(client, ErrorCode::InvalidArgument);

    let mut node = memory_node().await;
    let fixture =
        StoreFixture::create_at(&node.endpoint(), crate::world::spec([("a", INT64)])).await;
    node.kill();
    let write = fixture.store.upsert("k").increment("a", 1).deadline(SOON).send();
    let error = timeout(PATIENCE, write).await.unwrap().unwrap_err();
    let is_expected = matches!(error.code(), ErrorCode::Unavailable | ErrorCode::UnknownOutcome);
    assert!(is_expected, "{error}");
    node.restart().await;
    let pending = error.into_pending().expect("it may be resolved").deadline(PATIENCE);
    pending.retry().await.unwrap().require_complete().unwrap();
    assert_eq!(fixture.latest("k").await, Some(fields([("a", int(1))])));
}

pub async fn errors_carry_class_context_and_advice() {
    let fixture = StoreFixture::with([("a", INT32)]).await;
    let other = StoreFixture::with([("a", INT32)]).await;
    let (store, reader) = (&fixture.store, &fixture.reader);
    let name = fixture.name().to_owned();
    let secret = "do-not-show-this";
    let foreign = sent(other.store.upsert("k").set("a", 1)).await;
    let column = [GatherField::new("a")];
    let plan = reader.plan_gather::<i32>(&column, Conversion::Exact).unwrap();
    let mut gather_out = GatherOut::values(&mut []);
    let gathered =
        reader.read_local(None, |view| view.gather(&plan, &[secret][..], &mut gather_out));
    let of_other_type = reader.get_document(DocumentKey::from(1));
    let unknown = client_of(&endpoint().await).await.store("nobody").await;
    let write_error = store.upsert(secret).set("a", secret).send().await.map_err(Error::from);
    let oversize = store.upsert(&secret.repeat(5_000)).set("a", 1).send().await;
    let same_spec = keyed(forebay::schema::KeyType::String, 1, []);
    let same_spec = forebay::schema::StoreSpec { name: name.clone(), ..same_spec };
    let in_store = |field, numbers| (Some(name.as_str()), field, numbers);
    let failures = [
        (write_error.map(drop), ErrorCode::InvalidArgument, in_store(Some("a"), None)),
        (
            reader.field_as("none", INT32).map(drop),
            ErrorCode::NotFound,
            in_store(Some("none"), None),
        ),
        (
            oversize.map(drop).map_err(Error::from),
            ErrorCode::LimitExceeded,
            in_store(None, Some((65_536, 80_000))),
        ),
        (gathered, ErrorCode::InvalidArgument, in_store(None, None)),
        (of_other_type.map(drop), ErrorCode::InvalidArgument, in_store(None, None)),
        (
            fixture.client.create_store(&same_spec).await.map(drop),
            ErrorCode::Conflict,
            in_store(None, None),
        ),
        (
            document(reader, &after(&foreign), secret).await.map(drop),
            ErrorCode::InvalidArgument,
            in_store(None, None),
        ),
        (unknown.map(drop), ErrorCode::NotFound, (Some("nobody"), None, None)),
    ];
    for (result, code, (store, field, numbers)) in failures {
        let error = assert_refused(result, code);
        let context = error.context();
        assert_eq!(context.store.as_deref(), store, "{error}");
        assert_eq!(context.field.as_deref(), field, "{error}");
        assert_eq!(context.limit.zip(context.actual), numbers, "{error}");
        assert!(error.to_string().starts_with(code.name()), "{error}");
        assert!(error.message().len() > 20, "says what to do next: {error}");
        assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    }
}
