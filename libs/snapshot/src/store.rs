//! The folder of snapshots in an object store, given by a URL.

use std::fmt;
use std::sync::Arc;

use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutPayload};
use url::Url;

use crate::error::{refusal_error, unwritable};
use crate::partition::PartitionSnapshots;
use crate::remote::{Settings, connect};

/// Name of the file that tests whether a folder can be written.
const PROBE: &str = "probe";

/// A folder of an object store. Cheap to clone.
#[derive(Clone)]
pub struct SnapshotStore {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) root: Path,
    /// File system of the objects, if they are on this machine.
    local: Option<Arc<LocalFileSystem>>,
}

impl fmt::Debug for SnapshotStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotStore({}/{})", self.objects, self.root)
    }
}

impl SnapshotStore {
    /// Opens the folder of this URL: `file:///folder`, `s3://bucket/folder`,
    /// `az://container/folder` or `gs://bucket/folder`. The call sends no request.
    ///
    /// Credentials and endpoints come from the environment, by the names that the stores' own tools
    /// use: `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, `AZURE_STORAGE_ACCOUNT_NAME`,
    /// `GOOGLE_SERVICE_ACCOUNT` and so on. Every variable counts that begins with `AWS_`, `AZURE_`
    /// or `GOOGLE_` and is an option of the store.
    ///
    /// An endpoint without TLS must be allowed: `AWS_ALLOW_HTTP=true`, `AZURE_ALLOW_HTTP=true`. If
    /// a server refuses connections, calls fail with `Unavailable` after 10 s. If a server accepts
    /// connections and hangs, calls fail after 30 s, in the worst case after some 40 s.
    /// `AWS_TIMEOUT` and `AZURE_TIMEOUT`, such as `90 s`, allow more time for a chunk on a slow
    /// connection.
    ///
    /// An object in a folder of this machine is on its disk when the call returns. `gs://` is
    /// configured like the others, and was never tested against Google's own servers.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL that names no such folder, or for invalid settings.
    pub fn open(url: &str) -> Result<Self> {
        Self::open_by(url, |scheme| Settings::find(scheme, std::env::vars_os()))
    }

    /// Works like [`SnapshotStore::open`], with these options instead of the environment, by the
    /// same names in upper or lower case.
    ///
    /// # Errors
    /// As [`SnapshotStore::open`]; `InvalidArgument` for an unknown option. A folder of this
    /// machine has no options.
    pub fn open_with(
        url: &str,
        options: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        Self::open_by(url, |_| Settings::Given(options.into_iter().collect()))
    }

    fn open_by(url: &str, settings: impl FnOnce(&ObjectStoreScheme) -> Settings) -> Result<Self> {
        let wrong = |reason: &str| {
            let message = format!(
                "`{url}` names no folder for snapshots: {reason}; give file:///…, s3://…, az://… \
                 or gs://…"
            );
            Error::invalid_argument(message)
        };
        let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        let (scheme, root) =
            ObjectStoreScheme::parse(&parsed).map_err(|error| wrong(&error.to_string()))?;
        let objects: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::Local => match settings(&scheme) {
                Settings::Given(options) if !options.is_empty() => {
                    let message =
                        format!("`{url}` is a local folder, which takes no options; give none");
                    return Err(Error::invalid_argument(message));
                }
                _ => {
                    let local = Arc::new(LocalFileSystem::new().with_fsync(true));
                    return Ok(Self { local: Some(Arc::clone(&local)), ..Self::of(local, root) });
                }
            },
            ObjectStoreScheme::AmazonS3
            | ObjectStoreScheme::GoogleCloudStorage
            | ObjectStoreScheme::MicrosoftAzure => {
                let connected = connect(&parsed, &scheme, settings(&scheme));
                let mended_message =
                    |reason| format!("`{url}` cannot be opened: {reason}; correct the settings");
                connected.map_err(|reason| Error::invalid_argument(mended_message(reason)))?
            }
            _ => return Err(wrong("the scheme names no durable object store")),
        };
        Ok(Self::of(objects, root))
    }

    /// Returns a folder of this object store.
    pub fn of(objects: Arc<dyn ObjectStore>, root: Path) -> Self {
        Self { objects, root, local: None }
    }

    /// Returns the snapshots of one partition.
    pub fn partition(&self, at: PartitionRef) -> PartitionSnapshots {
        let folder = format!("{:016x}", at.store.0);
        let root = self.root.clone().join(folder).join(format!("{:04}", at.partition.0));
        PartitionSnapshots::new(Arc::clone(&self.objects), root, at, self.local.clone())
    }

    /// Checks whether the folder can be reached and, on this machine, created and written.
    ///
    /// # Errors
    /// `Unavailable`, `Unauthenticated`, `PermissionDenied`; `LimitExceeded` if the disk is full;
    /// `InvalidArgument` if the bucket does not exist or the folder cannot be written.
    pub async fn check(&self) -> Result<()> {
        if self.local.is_some() {
            self.check_writes().await.map_err(|error| unwritable(&self.root, &error))?;
        }
        let listed = self.objects.list_with_delimiter(Some(&self.root)).await;
        listed.map(drop).map_err(|error| refusal_error("looking for snapshots", &error))
    }

    /// Creates the folder, and writes an empty file there, which is removed again.
    async fn check_writes(&self) -> object_store::Result<()> {
        let probe = self.root.clone().join(PROBE);
        self.objects.put(&probe, PutPayload::new()).await?;
        match self.objects.delete(&probe).await {
            // Another process that checks the same folder has removed the file.
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            removed => removed,
        }
    }
}
