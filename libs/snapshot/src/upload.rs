//! Concurrent upload of chunks to the object store, while their builder continues.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_core::limits::{SNAPSHOT_CHUNK_BYTES, SNAPSHOT_CHUNKS_AT_ONCE};
use forebay_core::{Error, Result};
use forebay_index::ImageSink;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::chunk::{ChunkHash, ChunkId};
use crate::partition::PartitionSnapshots;

/// An upload of the chunks of one snapshot.
pub struct ChunkUpload {
    to: PartitionSnapshots,
    snapshot: u64,
    known_chunks: Arc<HashMap<ChunkHash, ChunkId>>,
    /// Limits the chunks in memory.
    room: Arc<Semaphore>,
    under_way: JoinSet<Result<()>>,
    /// Chunks that were written, or are about to be.
    written: Vec<ChunkId>,
}

impl ChunkUpload {
    /// Creates an upload of chunks for the snapshot of this id, except for the known chunks.
    pub fn new(
        to: PartitionSnapshots,
        snapshot: u64,
        known_chunks: Arc<HashMap<ChunkHash, ChunkId>>,
    ) -> Self {
        let room = Arc::new(Semaphore::new(SNAPSHOT_CHUNKS_AT_ONCE));
        Self { to, snapshot, known_chunks, room, under_way: JoinSet::new(), written: Vec::new() }
    }

    /// Writes all chunks from now on, even known ones: a name states what an object was when it was
    /// written, not what it is now.
    pub fn write_all(&mut self) {
        self.known_chunks = Arc::default();
    }

    /// Stores these bytes, or finds them among the known chunks. Waits while the maximum number of
    /// uploads is in flight. An error of an upload may be returned by a later call.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn put(&mut self, bytes: Bytes) -> Result<ChunkId> {
        let id = ChunkId::of(&bytes, self.snapshot);
        if let Some(id) = self.known_chunks.get(&id.hash) {
            return Ok(*id);
        }
        while let Some(result) = self.under_way.try_join_next() {
            flatten(result)?;
        }
        let closed = |_| Error::internal("the upload was closed");
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(closed)?;
        self.written.push(id);
        let to = self.to.clone();
        let upload = async move {
            let result = to.put_chunk(id, bytes).await;
            drop(room);
            result
        };
        self.under_way.spawn(upload);
        Ok(id)
    }

    /// Waits until all chunks are stored, and returns `result`. If the build or an upload has
    /// failed, the call removes the written chunks: no manifest names them, and on a full disk they
    /// would prevent the next attempt.
    ///
    /// # Errors
    /// The error in `result`; the errors of the object store.
    pub async fn end<M>(mut self, result: Result<M>) -> Result<M> {
        let mut outcome = result;
        while let Some(upload_result) = self.under_way.join_next().await {
            if let (Err(error), true) = (flatten(upload_result), outcome.is_ok()) {
                outcome = Err(error);
            }
        }
        if outcome.is_err() {
            let names = self.written.iter().map(ChunkId::name).collect();
            if let Err(error) = self.to.remove_chunks(names).await {
                let at = self.to.partition();
                tracing::debug!(%at, %error, "unused chunks stay until garbage collection");
            }
        }
        outcome
    }
}

fn flatten(result: std::result::Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    result.unwrap_or_else(|_| Err(Error::internal("an upload broke off; see the log")))
}

/// An image that is uploaded while it is written. Use it on a thread that may block, or in
/// [`tokio::task::block_in_place`].
pub struct ImageUpload<'u> {
    upload: &'u mut ChunkUpload,
    runtime: Handle,
    /// The first chunk, whose front is written last.
    first: Vec<u8>,
    /// Stored chunks after the first one.
    stored: Vec<ChunkId>,
    /// Bytes after the stored chunks.
    pending: BytesMut,
}

impl<'u> ImageUpload<'u> {
    /// Creates an image upload; tasks of this runtime upload the chunks.
    pub fn new(upload: &'u mut ChunkUpload, runtime: Handle) -> Self {
        Self { upload, runtime, first: Vec::new(), stored: Vec::new(), pending: BytesMut::new() }
    }

    /// Returns the chunks of the image; the last ones are still in flight.
    ///
    /// # Errors
    /// As [`ChunkUpload::put`]; `Internal` for an image without bytes.
    pub fn finish(mut self) -> Result<Vec<ChunkId>> {
        if self.first.is_empty() {
            return Err(Error::internal("the image is empty"));
        }
        if !self.pending.is_empty() {
            let last = self.upload.put(self.pending.freeze());
            self.stored.push(self.runtime.block_on(last)?);
        }
        let first = self.upload.put(self.first.into());
        let mut chunks = vec![self.runtime.block_on(first)?];
        chunks.extend(self.stored);
        Ok(chunks)
    }

    /// Returns the offset of the next bytes after the first block.
    fn end(&self) -> usize {
        self.first.len() + self.stored.len() * SNAPSHOT_CHUNK_BYTES + self.pending.len()
    }
}

impl ImageSink for ImageUpload<'_> {
    fn write_at(&mut self, mut bytes: &[u8], at: u64) -> Result<()> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if self.first.is_empty() {
            // The writer writes the first block last.
            self.first.resize(at, 0);
        } else if at + bytes.len() <= self.first.len() && at < self.end() {
            self.first[at..at + bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        if at != self.end() {
            return Err(Error::internal("the image was not written from front to end"));
        }
        let (front, rest) =
            bytes.split_at(bytes.len().min(SNAPSHOT_CHUNK_BYTES - self.first.len()));
        self.first.extend_from_slice(front);
        bytes = rest;
        while !bytes.is_empty() {
            let room = SNAPSHOT_CHUNK_BYTES - self.pending.len();
            let (front, rest) = bytes.split_at(bytes.len().min(room));
            self.pending.extend_from_slice(front);
            bytes = rest;
            if self.pending.len() == SNAPSHOT_CHUNK_BYTES {
                let upload = self.upload.put(self.pending.split().freeze());
                self.stored.push(self.runtime.block_on(upload)?);
            }
        }
        Ok(())
    }
}
