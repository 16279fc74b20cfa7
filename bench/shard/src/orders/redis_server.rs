//! Redis in a separate process, and clients on separate threads.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::latency::Latency;
use forebay_bench_micro::server::scratch;
use forebay_testkit::child::OwnedChild;
use redis::{Client, Commands, Connection};
use tempfile::TempDir;

use super::data;
use super::job::{Job, Side};

/// Number of polls until the server answers, and the pause between them.
const LOOKS: (u32, Duration) = (500, Duration::from_millis(20));

/// A running server; dropping it kills the process and removes its data.
pub struct RedisServer {
    _process: OwnedChild,
    client: Client,
    _folder: TempDir,
}

impl RedisServer {
    /// Starts a server that syncs each write before it acknowledges it, or a server that writes
    /// nothing to the disk.
    ///
    /// # Errors
    /// Fails if there is no `redis-server` (`make setup` installs it), or the server does not
    /// start.
    pub fn start(is_synced: bool) -> Result<Self, String> {
        let folder = scratch()?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.map_err(|error| format!("find a free port: {error}"))?.port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--port"]).arg(port.to_string());
        let appended = if is_synced { "yes" } else { "no" };
        command.args(["--appendfsync", "always", "--appendonly", appended]);
        command.arg("--dir").arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let spawn_result = command.spawn();
        let process = spawn_result
            .map_err(|error| format!("start redis-server: {error}; `make setup` installs it"))?;
        let client = Client::open(("127.0.0.1", port)).map_err(|error| error.to_string())?;
        let server = Self { _process: OwnedChild(process), client, _folder: folder };
        for _ in 0..LOOKS.0 {
            if server.connect().is_ok() {
                return Ok(server);
            }
            thread::sleep(LOOKS.1);
        }
        Err(format!("redis-server does not answer at port {port}"))
    }

    fn connect(&self) -> Result<Connection, String> {
        self.client.get_connection().map_err(|error| format!("redis: {error}"))
    }

    fn run_one(&self, place: usize, job: &Job) -> Result<Latency, String> {
        let (mut connection, mut latency) = (self.connect()?, Latency::new()?);
        for operation in job.operations_of(place) {
            let began = nanos();
            if job.is_connecting {
                operate(&mut self.connect()?, job, operation)?;
            } else {
                operate(&mut connection, job, operation)?;
            }
            latency.record(nanos() - began);
        }
        Ok(latency)
    }
}

impl Side for RedisServer {
    fn run(&self, job: &Job) -> Result<Latency, String> {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..job.clients)
                .map(|place| scope.spawn(move || self.run_one(place, job)))
                .collect();
            let mut latency = Latency::new()?;
            for client in clients {
                latency.add(&client.join().map_err(|_| "a client has panicked")??)?;
            }
            Ok(latency)
        })
    }
}

fn operate(connection: &mut Connection, job: &Job, operation: u64) -> Result<(), String> {
    let document = job.document(operation);
    // Keys of different stores share one name space in Redis.
    let key = format!("{}:{}", job.value_bytes, data::key(document));
    let error_text = |error: redis::RedisError| format!("redis: {error}");
    if job.order.is_write {
        let value = data::value(document, job.value_bytes);
        return connection.set(key, value).map_err(error_text);
    }
    let value: Option<Vec<u8>> = connection.get(key).map_err(error_text)?;
    job.check(document, value.as_deref())
}
