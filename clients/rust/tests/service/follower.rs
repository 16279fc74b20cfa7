//! A reader in a separate process, over checkpoints; the process can be killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use forebay::schema::StoreId;
use forebay::writes::Token;
use forebay_core::id::PartitionId;
use forebay_index::SharedCopyDirectory;
use forebay_testkit::tree;
use tempfile::TempDir;

use crate::world::World;

/// The example `follow` in a separate process; dropping the value kills the process.
pub struct Follower {
    pub process: Child,
    output: BufReader<ChildStdout>,
    is_ready: bool,
}

impl Follower {
    /// Starts a process that follows the store `counters`.
    pub fn start(world: &World, directory: &Path, is_shared: bool) -> Self {
        let mut command = Command::new(tree::built("follow").unwrap());
        command.args([&world.endpoint(), "counters"]).arg(directory);
        command.args((!is_shared).then_some("alone"));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output, is_ready: false }
    }

    /// Returns the next line that the process prints; empty if the process has ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Waits until the process has printed that it is ready.
    pub fn await_ready(&mut self) {
        if !self.is_ready {
            let line = self.line();
            assert!(line.starts_with("ready"), "it ended: {line}");
            self.is_ready = true;
        }
    }

    /// Returns all documents as of a token, a line for each, in the order of their keys.
    pub fn documents(&mut self, token: &Token) -> Vec<String> {
        self.await_ready();
        let digits = hex::encode(token.encode());
        writeln!(self.process.stdin.as_mut().unwrap(), "{digits}").unwrap();
        let lines = std::iter::from_fn(|| {
            let line = self.line();
            assert!(line.ends_with('\n'), "it ended: {line}");
            Some(line.trim_end().to_owned()).filter(|line| !line.is_empty())
        });
        let mut documents: Vec<_> = lines.collect();
        documents.sort();
        documents
    }

    /// Ends the input, and so the process.
    pub fn end_input(&mut self) {
        drop(self.process.stdin.take());
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // The kill is a SIGKILL, in the middle of the process's work.
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}

/// A directory for checkpoints; dropping it also removes the copies that readers share of it.
pub struct CheckpointFolder {
    directory: TempDir,
    store: StoreId,
}

impl CheckpointFolder {
    pub fn new(store: StoreId) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), store }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the copies, as a restart of the machine would; the checkpoints remain.
    pub fn lose_copies(&self) {
        SharedCopyDirectory::new(self.path()).remove(self.store, (0..4).map(PartitionId));
    }
}

impl Drop for CheckpointFolder {
    fn drop(&mut self) {
        self.lose_copies();
    }
}
