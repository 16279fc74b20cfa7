//! Real object stores on loopback for tests: an S3 server (s3proxy) and an Azure server (Azurite),
//! pinned in `infra/objects`. Each has a user, a secret, a port and a folder of its own. A test
//! kills, stops, suspends and restarts a server over its data; a guard removes the server when the
//! test process ends, in whatever way.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use tempfile::TempDir;

use crate::processes::{self, Guard, exit_status, free_ports, random_hex, retry_taken_ports, wait};
use crate::tree;

pub use crate::processes::Result;

/// The folder of settings.
const SETTINGS: &str = "infra/objects";
/// Environment variable of a Bazel target: paths of the S3 server's jars in its runfiles.
const DECLARED_JARS: &str = "FOREBAY_S3_JARS";
/// Folder of these jars inside cargo's target directory, filled by set-up.
const JARS: &str = "objects/s3";
/// Folder of the Azure server's packages, filled by set-up.
const PACKAGES: &str = "objects/azure";
/// The Azure server's program for blobs, one of its three services.
const AZURITE: &str = "node_modules/azurite/dist/src/blob/main.js";
/// File in the folder of settings that Node.js loads before the Azure server.
const AZURITE_PAGES: &str = "azurite_pages.js";
/// Bound of a start, which takes about 3 s.
const START_WAIT: Duration = Duration::from_secs(120);
/// Bound of one exchange with a server.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
const REGION: &str = "us-east-1";
/// User of an S3 server, and account of an Azure server.
const USER: &str = "forebaytest";

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectServerKind {
    /// Amazon S3.
    S3,
    /// Azure Blob Storage.
    Azure,
}

/// A running server. All methods block; the drop kills it.
pub struct ObjectServer {
    kind: ObjectServerKind,
    port: u16,
    /// Secret in base64, as Azure's keys are; hexadecimal digits are valid base64.
    secret: String,
    /// Running process; `None` while it is down.
    process: Mutex<Option<Child>>,
    guard: Mutex<Guard>,
    /// Temporary folder; declared last, so that it is removed last.
    folder: TempDir,
}

impl ObjectServer {
    /// Starts a server without buckets, and waits until it serves.
    ///
    /// # Errors
    /// Returns an error if the server was not fetched (`make setup`), without Java or Node.js, or
    /// if the server does not start; the text includes its last log lines.
    pub fn start(kind: ObjectServerKind) -> Result<Self> {
        retry_taken_ports(|| Self::try_start(kind))
    }

    fn try_start(kind: ObjectServerKind) -> Result<Self> {
        let folder = processes::folder("objects")?;
        let data = folder.path().join("data");
        fs::create_dir(&data).map_err(|error| format!("make {}: {error}", data.display()))?;
        let server = Self {
            kind,
            port: free_ports(1)?[0],
            secret: random_hex()?,
            process: Mutex::new(None),
            guard: Mutex::new(Guard::start(folder.path())?),
            folder,
        };
        server.restart()?;
        Ok(server)
    }

    /// Returns the protocol of the server.
    #[must_use]
    pub fn kind(&self) -> ObjectServerKind {
        self.kind
    }

    /// Creates a bucket (a container, in Azure's terms); returns the URL of a folder in it.
    ///
    /// # Errors
    /// Returns an error if the server refuses or does not answer.
    pub fn make_bucket(&self, name: &str) -> Result<String> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = "PUT".parse().map_err(|error| format!("PUT: {error}"))?;
        let kind_of_it = match self.kind {
            ObjectServerKind::S3 => "",
            ObjectServerKind::Azure => "?restype=container",
        };
        let address = format!("{}/{name}{kind_of_it}", self.endpoint());
        let address = address.parse().map_err(|error| format!("the address {address}: {error}"))?;
        *request.uri_mut() = address;
        self.sign(&mut request).map_err(|error| format!("sign the making of {name}: {error}"))?;
        let answer = self.exchange(&request).map_err(|error| format!("make {name}: {error}"))?;
        match answer.split(' ').nth(1) {
            Some("200" | "201") => Ok(self.url(name)),
            _ => Err(format!("make {name}: the server answers {answer}")),
        }
    }

    /// Returns the URL of a folder in a bucket, which may be missing.
    #[must_use]
    pub fn url(&self, bucket: &str) -> String {
        let scheme = match self.kind {
            ObjectServerKind::S3 => "s3",
            ObjectServerKind::Azure => "az",
        };
        format!("{scheme}://{bucket}/some/folder")
    }

    /// Returns the options that a client needs to reach the server, by the names of environment
    /// variables.
    #[must_use]
    pub fn options(&self) -> Vec<(String, String)> {
        let endpoint = self.endpoint();
        let options: &[(&str, &str)] = match self.kind {
            ObjectServerKind::S3 => &[
                ("AWS_ACCESS_KEY_ID", USER),
                ("AWS_SECRET_ACCESS_KEY", &self.secret),
                ("AWS_REGION", REGION),
                ("AWS_ENDPOINT", &endpoint),
                ("AWS_ALLOW_HTTP", "true"),
            ],
            ObjectServerKind::Azure => &[
                ("AZURE_STORAGE_ACCOUNT_NAME", USER),
                ("AZURE_STORAGE_ACCOUNT_KEY", &self.secret),
                ("AZURE_STORAGE_ENDPOINT", &endpoint),
                ("AZURE_ALLOW_HTTP", "true"),
            ],
        };
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Kills the server as `kill -9` does. Does nothing to a server that is down.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.process().take() else { return Ok(()) };
        self.tell_guard()?;
        processes::kill(self.name(), &mut child)
    }

    /// Stops the server by SIGTERM, and kills it if it has not ended after 20 s. Only after an
    /// orderly stop has Azurite everything that it acknowledged on disk.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn stop(&self) -> Result<()> {
        if let Some(child) = &mut *self.process() {
            processes::ask_to_stop(child)?;
        }
        self.kill()
    }

    /// Suspends the server: the system accepts connections for it, and the server answers nothing.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn hold(&self) -> Result<()> {
        self.process().as_ref().map_or(Ok(()), |child| processes::signal(child, "-STOP"))
    }

    /// Resumes a suspended server.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn go_on(&self) -> Result<()> {
        self.process().as_ref().map_or(Ok(()), |child| processes::signal(child, "-CONT"))
    }

    /// Starts the server again on its own data and port, and waits until it serves. A running
    /// server is killed first.
    ///
    /// # Errors
    /// Returns an error if the server does not start; the text includes its last log lines.
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        let mut command = match self.kind {
            ObjectServerKind::S3 => self.s3proxy()?,
            ObjectServerKind::Azure => self.azurite()?,
        };
        command.current_dir(self.folder.path());
        processes::log_into(&mut command, &self.log())?;
        let child = command.spawn().map_err(|error| format!("start {}: {error}", self.name()))?;
        *self.process() = Some(child);
        self.tell_guard()?;
        self.await_ready()
    }

    fn s3proxy(&self) -> Result<Command> {
        let templates = tree::find(SETTINGS)?;
        let template = templates.join("s3proxy.properties");
        let settings = fs::read_to_string(&template)
            .map_err(|error| format!("read {}: {error}", template.display()))?
            .replace("@PORT@", &self.port.to_string())
            .replace("@USER@", USER)
            .replace("@SECRET@", &self.secret)
            .replace("@DATA@", &self.data().to_string_lossy());
        let path = self.folder.path().join("s3proxy.properties");
        fs::write(&path, settings).map_err(|error| format!("write {}: {error}", path.display()))?;
        let mut command = processes::java(&processes::class_path(DECLARED_JARS, JARS)?);
        let logging = templates.join("logback.xml");
        command.arg(format!("-Dlogback.configurationFile={}", logging.display()));
        command.args(["org.gaul.s3proxy.Main", "--properties"]).arg(path);
        Ok(command)
    }

    fn azurite(&self) -> Result<Command> {
        let mut command = Command::new("node");
        command.arg("--require").arg(tree::find(SETTINGS)?.join(AZURITE_PAGES));
        command.arg(tree::fetched(PACKAGES)?.join(AZURITE));
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &self.port.to_string()]);
        command.args(["--silent", "--disableTelemetry", "--location"]).arg(self.data());
        command.env("AZURITE_ACCOUNTS", format!("{USER}:{}", self.secret));
        Ok(command)
    }

    fn await_ready(&self) -> Result<()> {
        let ready = wait(START_WAIT, || {
            let is_heard = TcpStream::connect(self.address()).is_ok();
            // Checked last, because another process may have taken the port and accepted the
            // connection.
            match self.process().as_mut().map(exit_status).transpose()?.flatten() {
                Some(status) => {
                    Err(self.failure_message(&format!("ended at its start ({status})")))
                }
                None => Ok(is_heard.then_some(())),
            }
        })?;
        ready.ok_or_else(|| self.failure_message("did not get ready"))
    }

    fn sign(&self, request: &mut HttpRequest) -> object_store::Result<()> {
        match self.kind {
            ObjectServerKind::S3 => {
                let (key_id, secret_key) = (USER.to_owned(), self.secret.clone());
                let credential = AwsCredential { key_id, secret_key, token: None };
                AwsAuthorizer::new(&credential, "s3", REGION).try_authorize(request, None)
            }
            ObjectServerKind::Azure => {
                let key = AzureAccessKey::try_new(&self.secret)?;
                let credential = AzureCredential::AccessKey(key);
                AzureAuthorizer::new(&credential, USER).try_authorize(request)
            }
        }
    }

    /// Sends a request without a body; returns the raw response.
    fn exchange(&self, request: &HttpRequest) -> std::io::Result<String> {
        let uri = request.uri();
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut head = format!("{} {target} HTTP/1.1\r\n", request.method());
        head += &format!("host: {}\r\ncontent-length: 0\r\n", self.address());
        for (name, value) in request.headers() {
            head += &format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes()));
        }
        head += "connection: close\r\n\r\n";
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    fn endpoint(&self) -> String {
        match self.kind {
            ObjectServerKind::S3 => format!("http://{}", self.address()),
            ObjectServerKind::Azure => format!("http://{}/{USER}", self.address()),
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn name(&self) -> &'static str {
        match self.kind {
            ObjectServerKind::S3 => "the S3 server",
            ObjectServerKind::Azure => "the Azure server",
        }
    }

    fn failure_message(&self, failure: &str) -> String {
        processes::failure_message(self.name(), failure, &self.log())
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_guard(&self) -> Result<()> {
        let id = self.process().as_ref().map(|child| child.id().to_string()).unwrap_or_default();
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).tell(&id)
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
