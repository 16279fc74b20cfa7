//! The simulated network: in-memory connections that stall and break by the seed.
//!
//! Both ends of a connection are pipes inside one thread; tonic runs over them as over TCP. A
//! server that is down refuses connections; a server that dies breaks its connections.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_log::remote::with_windows;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Capacity of a connection in each direction, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
const CONNECTIONS_WAITING_MAX: usize = 1_024;

/// Fault rates of the network, per million transfers of some bytes. An end draws a random number
/// only after bytes have moved, from its own sequence: the number of polls without bytes differs
/// between two runs of a seed, and must not matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetFaults {
    /// Rate of connections that break at a read or write.
    pub cut_per_million: u64,
    /// Rate of reads that stall.
    pub stall_per_million: u64,
    /// Longest stall, in milliseconds.
    pub stall_ms_max: u64,
}

impl NetFaults {
    /// A calm network: responses take time, so that other events happen in between.
    pub const CALM: Self = Self { cut_per_million: 0, stall_per_million: 30_000, stall_ms_max: 3 };
}

/// Counters of the fired faults.
#[derive(Debug, Default)]
pub struct NetCounts {
    cuts: AtomicU64,
    stalls: AtomicU64,
    refusals: AtomicU64,
}

impl NetCounts {
    /// Returns the counters by name: connections broken, reads stalled, connections refused because
    /// the server was down.
    pub fn by_name(&self) -> [(&'static str, u64); 3] {
        [
            ("connection broken", &self.cuts),
            ("transfer stalled", &self.stalls),
            ("connection refused", &self.refusals),
        ]
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

/// A member of the network, whose connections can be silenced together.
#[derive(Debug, Default)]
pub struct Party {
    silent_until: Mutex<Option<Instant>>,
}

impl Party {
    /// Silences the member's connections for this long: nothing arrives, and no connection breaks.
    pub fn part(&self, silence: Duration) {
        *lock(&self.silent_until) = Some(Instant::now() + silence);
    }

    fn silence(&self) -> Option<Instant> {
        let silence_end = *lock(&self.silent_until);
        silence_end.filter(|silence_end| *silence_end > Instant::now())
    }
}

/// The network between one server and any number of clients.
#[derive(Clone)]
pub struct SimNet(Arc<NetState>);

struct NetState {
    seed: u64,
    /// Number of connections so far; each connection gives its ends their own sequences.
    connections: AtomicU64,
    faults: Mutex<NetFaults>,
    counts: NetCounts,
    server: Mutex<Option<Server>>,
}

struct Server {
    accepts: mpsc::Sender<io::Result<SimStream>>,
    links: Vec<Weak<Link>>,
}

/// A connection, shared by both ends.
#[derive(Default)]
struct Link {
    is_broken: AtomicBool,
    /// Wakers of reads that wait for bytes; a break must wake them.
    wakers: Mutex<[Option<Waker>; 2]>,
}

impl Link {
    fn break_off(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        lock(&self.wakers).iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }
}

impl SimNet {
    /// Returns a network of this seed, without a server.
    pub fn new(seed: u64, faults: NetFaults) -> Self {
        Self(Arc::new(NetState {
            seed,
            connections: AtomicU64::new(0),
            faults: Mutex::new(faults),
            counts: NetCounts::default(),
            server: Mutex::new(None),
        }))
    }

    /// Sets the fault rates from now on.
    pub fn set_faults(&self, faults: NetFaults) {
        *lock(&self.0.faults) = faults;
    }

    /// Returns the counters of the fired faults.
    pub fn counts(&self) -> &NetCounts {
        &self.0.counts
    }

    /// Puts a server on the network; the receiver yields its connections.
    pub fn listen(&self) -> mpsc::Receiver<io::Result<SimStream>> {
        let (accepts, receiver) = mpsc::channel(CONNECTIONS_WAITING_MAX);
        *lock(&self.0.server) = Some(Server { accepts, links: Vec::new() });
        receiver
    }

    /// Takes the server off the network and breaks all its connections.
    pub fn take_down(&self) {
        if let Some(server) = lock(&self.0.server).take() {
            server.links.iter().filter_map(Weak::upgrade).for_each(|link| link.break_off());
        }
    }

    /// Breaks all connections; new ones are possible at once.
    pub fn cut_all(&self) {
        if let Some(server) = lock(&self.0.server).as_mut() {
            server.links.drain(..).filter_map(|link| link.upgrade()).for_each(|l| l.break_off());
            self.0.counts.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a gRPC channel of this member to the server that is on the network when it connects.
    pub fn channel(&self, party: &Arc<Party>) -> Channel {
        let (net, party) = (self.clone(), Arc::clone(party));
        let connector = service_fn(move |_: Uri| {
            let (net, party) = (net.clone(), Arc::clone(&party));
            async move { net.connect(&party).map(TokioIo::new) }
        });
        with_windows(Endpoint::from_static("http://simulated"))
            // HTTP/2 measures this period by the host's clock, so it must be longer than any run.
            .http2_reset_stream_duration(Duration::from_secs(24 * 60 * 60))
            .connect_with_connector_lazy(connector)
    }

    fn connect(&self, party: &Arc<Party>) -> io::Result<SimStream> {
        let refuse = || {
            self.0.counts.refusals.fetch_add(1, Ordering::Relaxed);
            io::Error::from(io::ErrorKind::ConnectionRefused)
        };
        let mut server = lock(&self.0.server);
        let Server { accepts, links } = server.as_mut().ok_or_else(refuse)?;
        let (client_end, server_end) = tokio::io::duplex(PIPE_BYTES);
        let link = Arc::new(Link::default());
        let number = self.0.connections.fetch_add(1, Ordering::Relaxed);
        let stream = |pipe, end: usize| SimStream {
            pipe,
            net: self.clone(),
            entropy: SeededEntropy::new(self.0.seed ^ (2 * number + end as u64) << 24),
            stalls_next: false,
            link: Arc::clone(&link),
            party: Arc::clone(party),
            end,
            stall: None,
        };
        accepts.try_send(Ok(stream(server_end, 1))).map_err(|_| refuse())?;
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        Ok(stream(client_end, 0))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An end of a connection.
pub struct SimStream {
    pipe: DuplexStream,
    net: SimNet,
    link: Arc<Link>,
    party: Arc<Party>,
    /// Number of this end, 0 or 1.
    end: usize,
    entropy: SeededEntropy,
    /// Whether the next read stalls.
    stalls_next: bool,
    stall: Option<Pin<Box<Sleep>>>,
}

impl SimStream {
    fn check(&self) -> io::Result<()> {
        if self.link.is_broken.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::ConnectionReset));
        }
        Ok(())
    }

    fn draw(&self) -> u64 {
        self.entropy.next_u64().unwrap_or_default()
    }

    /// Draws, after bytes have moved, whether the connection breaks or the next read stalls.
    fn draw_faults(&mut self) {
        let faults = *lock(&self.net.0.faults);
        if self.draw() % 1_000_000 < faults.cut_per_million {
            self.net.0.counts.cuts.fetch_add(1, Ordering::Relaxed);
            self.link.break_off();
        }
        self.stalls_next |= self.draw() % 1_000_000 < faults.stall_per_million;
    }

    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.stalls_next) {
            let ms_max = lock(&self.net.0.faults).stall_ms_max.max(1);
            self.net.0.counts.stalls.fetch_add(1, Ordering::Relaxed);
            let stall = Duration::from_millis(1 + self.draw() % ms_max);
            self.stall = Some(Box::pin(tokio::time::sleep(stall)));
        }
        loop {
            if let Some(stall) = &mut self.stall {
                std::task::ready!(stall.as_mut().poll(cx));
                self.stall = None;
            }
            match self.party.silence() {
                None => return Poll::Ready(()),
                Some(silence_end) => {
                    self.stall = Some(Box::pin(tokio::time::sleep_until(silence_end)))
                }
            }
        }
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        std::task::ready!(self.poll_stall(cx));
        lock(&self.link.wakers)[self.end] = Some(cx.waker().clone());
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.pipe).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.draw_faults();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let count = std::task::ready!(Pin::new(&mut self.pipe).poll_write(cx, bytes))?;
        self.draw_faults();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

impl Connected for SimStream {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}
