//! A faulty proxy in front of a real object server. Between a process under test and a correct
//! server it refuses, aborts, truncates, changes or delays calls as the test decides, and edits
//! lists.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use crate::object_servers::ObjectServer;
use crate::objects::ObjectFault;
use crate::processes::Result;

/// Bound of a wait for the server.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Response of an S3 server that denies access.
const REFUSAL: &str = "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code>\
                       <Message>refused by the test</Message></Error>";

/// A call on its way to the server.
#[derive(Clone, Debug)]
pub struct ObjectCall {
    /// `GET`, `PUT`, `HEAD`, `POST` or `DELETE`.
    pub method: String,
    /// Path and query of the object, as sent.
    pub target: String,
    /// Number of the call, from 0, since the last [`ObjectProxy::decide`].
    pub number: u64,
}

impl ObjectCall {
    /// Returns whether the call requests the bytes of an object.
    #[must_use]
    pub fn is_fetch(&self) -> bool {
        self.method == "GET" && !self.is_list()
    }

    /// Returns whether the call lists objects.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.method == "GET" && self.target.contains("list-type=")
    }
}

/// A function that decides the fault of a call; blocking in it delays the call. A lost response is
/// aborted in the middle; a truncated one has a consistent length.
pub type DecideCall = Arc<dyn Fn(&ObjectCall) -> Option<ObjectFault> + Send + Sync>;

/// A function that edits the body of an S3 server's list response.
pub type EditAnswer = Arc<dyn Fn(String) -> String + Send + Sync>;

/// The proxy. The drop closes it to new connections.
pub struct ObjectProxy {
    shared: Arc<ProxyState>,
    options: Vec<(String, String)>,
    accepting: Option<JoinHandle<()>>,
}

struct ProxyState {
    own_address: SocketAddr,
    server: SocketAddr,
    decide: Mutex<Option<DecideCall>>,
    edit: Mutex<Option<EditAnswer>>,
    calls: AtomicU64,
    is_over: AtomicBool,
}

impl ObjectProxy {
    /// Starts a proxy to this server that has no faults yet.
    ///
    /// # Errors
    /// Returns an error if there is no free port.
    pub fn start(server: &ObjectServer) -> Result<Self> {
        let result = TcpListener::bind(("127.0.0.1", 0));
        let listener = result.map_err(|error| format!("listen for a proxy: {error}"))?;
        let own_address =
            listener.local_addr().map_err(|error| format!("ask for a port: {error}"))?;
        let straight = server.address().to_string();
        let to_proxy = |(name, value): (String, String)| {
            let value = value.replace(&straight, &own_address.to_string());
            (name, value)
        };
        let options = server.options().into_iter().map(to_proxy).collect();
        let shared = Arc::new(ProxyState {
            own_address,
            server: server.address(),
            decide: Mutex::default(),
            edit: Mutex::default(),
            calls: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let accepts = Arc::clone(&shared);
        let accepting = thread::spawn(move || accepts.accept(&listener));
        Ok(Self { shared, options, accepting: Some(accepting) })
    }

    /// Returns the options with which a client uses the proxy, as [`ObjectServer::options`] does.
    #[must_use]
    pub fn options(&self) -> Vec<(String, String)> {
        self.options.clone()
    }

    /// Sets the function that decides about all calls from now on; `None` lets them pass.
    pub fn decide(&self, decide: Option<DecideCall>) {
        let mut now = self.shared.decide.lock();
        self.shared.calls.store(0, Ordering::Relaxed);
        *now = decide;
    }

    /// Sets the function that edits all lists from now on; `None` leaves them unchanged.
    pub fn edit_lists(&self, edit: Option<EditAnswer>) {
        *self.shared.edit.lock() = edit;
    }
}

impl Drop for ObjectProxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.shared.own_address));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl ProxyState {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            let (Ok(client), shared) = (client, Arc::clone(&self)) else { continue };
            // The thread ends with its client, or with an aborted response.
            thread::spawn(move || drop(shared.serve(&client)));
        }
    }

    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        let (mut reader, mut writer) = (BufReader::new(client), client);
        while let Some(request) = HttpMessage::read(&mut reader, false)? {
            if !self.pass(&request, &mut writer)? {
                return client.shutdown(Shutdown::Both);
            }
        }
        Ok(())
    }

    /// Forwards a call and its response; returns whether the connection stays open.
    fn pass(&self, request: &HttpMessage, client: &mut impl Write) -> io::Result<bool> {
        let mut words = request.head.first().map(String::as_str).unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let decide = self.decide.lock().clone();
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = ObjectCall { method: method.to_owned(), target: target.to_owned(), number };
        let fault = decide.and_then(|decide| decide(&call));
        if fault == Some(ObjectFault::Refused) {
            let body = if method == "HEAD" { "" } else { REFUSAL };
            let status = "HTTP/1.1 403 Forbidden".to_owned();
            HttpMessage { head: vec![status], body: body.into() }.write(client, body.len())?;
            return Ok(true);
        }
        let server = TcpStream::connect(self.server)?;
        server.set_read_timeout(Some(ANSWER_WAIT))?;
        request.write(&mut &server, request.body.len())?;
        let Some(mut answer) = HttpMessage::read(&mut BufReader::new(&server), method == "HEAD")?
        else {
            return Ok(false);
        };
        let edit = self.edit.lock().clone();
        if let Some(edit) = edit.filter(|_| call.is_list() && answer.is_ok()) {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            answer.body = edit(text).into_bytes();
        }
        let (length, is_get) = (answer.body.len(), method == "GET");
        match fault {
            Some(ObjectFault::LostAnswer) => {
                answer.body.truncate(length / 2);
                if is_get {
                    answer.write(client, length)?;
                }
                return Ok(false);
            }
            Some(ObjectFault::Cut) if is_get => answer.body.truncate(length / 2),
            Some(ObjectFault::Changed) if is_get && length > 0 => answer.body[length / 2] ^= 1,
            _ => {}
        }
        answer.write(client, answer.body.len())?;
        Ok(true)
    }
}

/// A request or a response.
struct HttpMessage {
    /// First line and headers, except headers about the body's length.
    head: Vec<String>,
    body: Vec<u8>,
}

impl HttpMessage {
    /// Reads the next message; `None` at the end of the connection. The caller says whether a
    /// response answers `HEAD`: such a response gives the length of a body that does not follow.
    fn read(from: &mut impl BufRead, is_to_head: bool) -> io::Result<Option<Self>> {
        let (mut head, mut length, mut is_chunked) = (Vec::new(), 0, false);
        loop {
            let Some(line) = line_of(from)? else { return Ok(None) };
            let (name, value) = line.split_once(':').unwrap_or_default();
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            match () {
                () if line.is_empty() => break,
                () if is("content-length") && !is_to_head => {
                    length = value.trim().parse().map_err(io::Error::other)?;
                }
                () if is("transfer-encoding") => is_chunked = true,
                () => head.push(line),
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        while is_chunked && !is_to_head {
            let size = line_of(from)?.unwrap_or_default();
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size];
            from.read_exact(&mut chunk)?;
            // Read the end of the line; after the last chunk, the end of the trailer.
            line_of(from)?;
            body.extend(chunk);
            is_chunked = size > 0;
        }
        Ok(Some(Self { head, body }))
    }

    /// Returns whether a response is successful.
    fn is_ok(&self) -> bool {
        self.head.first().is_some_and(|status| status.contains(" 200 "))
    }

    /// Sends the message, with this length of its body.
    fn write(&self, to: &mut impl Write, length: usize) -> io::Result<()> {
        let says_length = |line: &&String| line.to_ascii_lowercase().starts_with("content-length:");
        let mut head = self.head.join("\r\n");
        if !self.head.iter().any(|line| says_length(&line)) {
            head += &format!("\r\ncontent-length: {length}");
        }
        to.write_all(format!("{head}\r\n\r\n").as_bytes())?;
        to.write_all(&self.body)?;
        to.flush()
    }
}

/// Returns the next line; `None` at the end.
fn line_of(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    let is_end = line.is_empty();
    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
    Ok((!is_end).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, is_to_head: bool) -> HttpMessage {
        HttpMessage::read(&mut text.as_bytes(), is_to_head).unwrap().unwrap()
    }

    #[test]
    fn message_is_forwarded_with_its_length_in_either_encoding() {
        let mut written_bytes = Vec::new();
        let long = read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: x\r\n\r\nhello", false);
        long.write(&mut written_bytes, 5).unwrap();
        let chunks = "HTTP/1.1 200 OK\r\nETag: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                      3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
        let mut of_chunks = Vec::new();
        read(chunks, false).write(&mut of_chunks, 5).unwrap();
        let expected = "HTTP/1.1 200 OK\r\nETag: x\r\ncontent-length: 5\r\n\r\nhello";
        for bytes in [written_bytes, of_chunks] {
            assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        }
    }

    #[test]
    fn answer_to_head_retains_its_content_length() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let mut bytes = Vec::new();
        read(text, true).write(&mut bytes, 0).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        assert!(HttpMessage::read(&mut "".as_bytes(), false).unwrap().is_none());
    }
}
