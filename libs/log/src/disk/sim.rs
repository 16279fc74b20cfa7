//! A disk in memory that loses power and fails on command, for the simulator and for crash tests.
//!
//! Each file and directory exists twice: as running code sees it (live), and as a restart would
//! find it after a power cut (durable). The disk retains the unsynced operations in order, so that
//! a cut can drop all of them, leave a torn prefix, or leave any sectors of a file. A failed sync
//! discards these operations, as Linux does: a later successful sync makes none of them durable.

mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use forebay_core::entropy::Entropy;
use parking_lot::{Mutex, MutexGuard};

pub use self::node::Loss;
use self::node::{Dir, FileNode, Node, NodeId, ROOT};
use super::{Disk, DiskFile, DiskLock};

/// A disk in memory; clones share it.
#[derive(Clone)]
pub struct SimDisk(Arc<SimDiskCore>);

struct SimDiskCore {
    entropy: Arc<dyn Entropy>,
    state: Mutex<SimDiskState>,
}

/// Rates of spontaneous disk faults, out of 10,000 operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaultRates {
    /// Writes that fail after part of the bytes are written.
    pub write_failures: u32,
    /// Syncs of files and directories that fail.
    pub sync_failures: u32,
}

/// Counts of faults and operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Writes, syncs, truncations and name changes.
    pub operations: u64,
    /// Syncs of files that succeeded.
    pub file_syncs: u64,
    /// Writes that failed on command or by rate.
    pub failed_writes: u64,
    /// Syncs that failed on command or by rate.
    pub failed_syncs: u64,
    /// Writes that failed because the disk was full.
    pub full_writes: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Files that a power cut left with part of their unsynced data.
    pub torn_files: u64,
}

#[derive(Default)]
struct SimDiskState {
    nodes: BTreeMap<NodeId, Node>,
    node_next: NodeId,
    /// Number of power cuts; handles from before a cut are dead.
    boot: u64,
    locked_files: Vec<NodeId>,
    bytes_max: Option<u64>,
    operations_left: Option<u64>,
    write_failures: FailurePlan,
    sync_failures: FailurePlan,
    rates: DiskFaultRates,
    counts: DiskCounts,
}

/// Failures on command.
#[derive(Clone, Copy, Default)]
struct FailurePlan {
    /// Operations that succeed before the failures.
    successes: u64,
    failures: u32,
}

impl FailurePlan {
    /// Returns whether the next operation fails.
    fn take(&mut self) -> bool {
        if self.successes > 0 {
            self.successes -= 1;
            return false;
        }
        let is_due = self.failures > 0;
        self.failures = self.failures.saturating_sub(1);
        is_due
    }
}

impl SimDisk {
    /// Creates an empty disk without limits or faults; `entropy` decides what tears and what fails.
    pub fn new(entropy: Arc<dyn Entropy>) -> Self {
        let mut state = SimDiskState { node_next: ROOT + 1, ..SimDiskState::default() };
        state.nodes.insert(ROOT, Node::Dir(Dir::default()));
        Self(Arc::new(SimDiskCore { entropy, state: Mutex::new(state) }))
    }

    /// Cuts the power and restores it: locks are free, open files are dead, and `loss` decides
    /// which unsynced data remains.
    pub fn power_cut(&self, loss: Loss) {
        let mut state = self.0.state.lock();
        state.boot += 1;
        state.locked_files.clear();
        state.operations_left = None;
        state.counts.power_cuts += 1;
        let mut torn = 0;
        for node in state.nodes.values_mut() {
            match node {
                Node::File(file) => torn += u64::from(file.power_cut(loss, || self.draw())),
                Node::Dir(dir) => dir.power_cut(loss, || self.draw()),
            }
        }
        state.counts.torn_files += torn;
        state.drop_unnamed();
    }

    /// Lets this many more operations succeed; afterwards all operations fail until the next power
    /// cut.
    pub fn die_after(&self, operations: u64) {
        self.0.state.lock().operations_left = Some(operations);
    }

    /// Makes the next writes fail, each after part of its bytes are written.
    pub fn fail_writes(&self, count: u32) {
        self.0.state.lock().write_failures = FailurePlan { successes: 0, failures: count };
    }

    /// Makes one write fail after `successes` writes that succeed.
    pub fn fail_write_after(&self, successes: u64) {
        self.0.state.lock().write_failures = FailurePlan { successes, failures: 1 };
    }

    /// Makes the next syncs of files and directories fail.
    pub fn fail_syncs(&self, count: u32) {
        self.0.state.lock().sync_failures = FailurePlan { successes: 0, failures: count };
    }

    /// Makes one sync fail after `successes` syncs that succeed.
    pub fn fail_sync_after(&self, successes: u64) {
        self.0.state.lock().sync_failures = FailurePlan { successes, failures: 1 };
    }

    /// Sets the rates of spontaneous faults.
    pub fn set_rates(&self, rates: DiskFaultRates) {
        self.0.state.lock().rates = rates;
    }

    /// Limits the total bytes of all files; `None` removes the limit.
    pub fn set_bytes_max(&self, bytes_max: Option<u64>) {
        self.0.state.lock().bytes_max = bytes_max;
    }

    /// Returns the total bytes of all files.
    pub fn bytes_held(&self) -> u64 {
        self.0.state.lock().bytes_held()
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> DiskCounts {
        self.0.state.lock().counts
    }

    /// Returns every file below a directory, sorted.
    pub fn files(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for name in self.list(dir)? {
            let path = dir.join(name);
            match self.list(&path) {
                Ok(_) => found.extend(self.files(&path)?),
                Err(_) => found.push(path),
            }
        }
        Ok(found)
    }

    /// Returns the bytes of a file.
    pub fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.0.state.lock();
        let node = state.find(path)?;
        Ok(state.file(node)?.live.clone())
    }

    /// Replaces a file's bytes durably, as damage and not as a write.
    pub fn damage(&self, path: &Path, damage: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.0.state.lock();
        let node = state.find(path)?;
        let file = state.file(node)?;
        damage(&mut file.live);
        file.make_durable();
        Ok(())
    }

    fn draw(&self) -> u64 {
        self.0.entropy.next_u64().unwrap_or_default()
    }

    fn is_hit(&self, rate: u32) -> bool {
        rate > 0 && self.draw() % 10_000 < u64::from(rate)
    }

    /// Starts an operation that changes something.
    fn change(&self) -> io::Result<MutexGuard<'_, SimDiskState>> {
        let mut state = self.0.state.lock();
        match &mut state.operations_left {
            Some(0) => return Err(io::Error::other("the disk has no power")),
            Some(operations) => *operations -= 1,
            None => {}
        }
        state.counts.operations += 1;
        Ok(state)
    }

    fn handle(&self, state: &SimDiskState, node: NodeId) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: self.clone(), node, boot: state.boot })
    }

    /// Fails if this sync is due to fail, and counts the failure.
    fn sync_fails(&self, state: &mut SimDiskState) -> io::Result<()> {
        if state.sync_failures.take() || self.is_hit(state.rates.sync_failures) {
            state.counts.failed_syncs += 1;
            return Err(io::Error::other("a sync that fails by command"));
        }
        Ok(())
    }
}

impl SimDiskState {
    fn bytes_held(&self) -> u64 {
        let sizes = self.nodes.values().map(|node| match node {
            Node::File(file) if file.is_linked => file.live.len() as u64,
            _ => 0,
        });
        sizes.sum()
    }

    /// Removes files and directories that no name refers to.
    fn drop_unnamed(&mut self) {
        let mut linked_nodes = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            if let Some(Node::Dir(dir)) = self.nodes.get(&id) {
                open.extend(dir.names().values().filter(|node| linked_nodes.insert(**node)));
            }
        }
        self.nodes.retain(|id, node| {
            if let Node::File(file) = node {
                file.is_linked = true;
            }
            linked_nodes.contains(id)
        });
    }

    fn dir(&mut self, id: NodeId) -> io::Result<&mut Dir> {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir(dir)) => Ok(dir),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&mut self, id: NodeId) -> io::Result<&mut FileNode> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn find(&mut self, path: &Path) -> io::Result<NodeId> {
        let mut node = ROOT;
        for name in names(path) {
            let found = self.dir(node)?.names().get(&name);
            node = *found.ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    /// Returns the directory of a path's last name, and that name.
    fn parent(&mut self, path: &Path) -> io::Result<(NodeId, String)> {
        let mut names = names(path);
        let name = names.pop().ok_or(io::ErrorKind::InvalidInput)?;
        let dir = self.find(&names.iter().collect::<PathBuf>())?;
        Ok((dir, name))
    }

    fn add(&mut self, dir: NodeId, name: String, node: Node) -> io::Result<NodeId> {
        let id = self.node_next;
        self.dir(dir)?.set(name, Some(id));
        self.node_next += 1;
        self.nodes.insert(id, node);
        Ok(id)
    }
}

fn names(path: &Path) -> Vec<String> {
    let normal = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    normal.collect()
}

impl Disk for SimDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let mut node = ROOT;
        for name in names(dir) {
            let found = state.dir(node)?.names().get(&name).copied();
            node = match found {
                Some(found) => found,
                None => state.add(node, name, Node::Dir(Dir::default()))?,
            };
        }
        state.dir(node).map(|_| ())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut state = self.0.state.lock();
        let node = state.find(dir)?;
        Ok(state.dir(node)?.names().keys().cloned().collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.change()?;
        let (dir, name) = state.parent(path)?;
        if state.dir(dir)?.names().contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = state.add(dir, name, Node::File(FileNode::default()))?;
        Ok(self.handle(&state, node))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.state.lock();
        let node = state.find(path)?;
        state.file(node)?;
        Ok(self.handle(&state, node))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let (from_dir, from_name) = state.parent(from)?;
        let (to_dir, to_name) = state.parent(to)?;
        let node = state.find(from)?;
        state.dir(from_dir)?.set(from_name, None);
        state.dir(to_dir)?.set(to_name, Some(node));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let (dir, name) = state.parent(path)?;
        let node = state.find(path)?;
        state.file(node)?.is_linked = false;
        state.dir(dir)?.set(name, None);
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        for file in self.files(dir)? {
            self.remove(&file)?;
        }
        let mut state = self.change()?;
        let (parent, name) = state.parent(dir)?;
        state.dir(parent)?.set(name, None);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        self.sync_fails(&mut state)?;
        let node = state.find(dir)?;
        state.dir(node)?.sync();
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.0.state.lock();
        Ok(state.bytes_max.map_or(1 << 50, |max| max.saturating_sub(state.bytes_held())))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let mut state = self.0.state.lock();
        let (dir, name) = state.parent(path)?;
        let found = state.dir(dir)?.names().get(&name).copied();
        let node = match found {
            Some(node) => node,
            None => state.add(dir, name, Node::File(FileNode::default()))?,
        };
        if state.locked_files.contains(&node) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked_files.push(node);
        Ok(Box::new(SimLock(SimFile { disk: self.clone(), node, boot: state.boot })))
    }
}

struct SimFile {
    disk: SimDisk,
    node: NodeId,
    boot: u64,
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimFile({})", self.node)
    }
}

#[derive(Debug)]
struct SimLock(SimFile);

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.0.disk.0.state.lock();
        if state.boot == self.0.boot {
            state.locked_files.retain(|node| *node != self.0.node);
        }
    }
}

impl SimFile {
    fn check_boot(&self, state: &SimDiskState) -> io::Result<()> {
        if state.boot == self.boot {
            return Ok(());
        }
        Err(io::Error::other("this file was open when the power was cut"))
    }

    fn change(&self) -> io::Result<MutexGuard<'_, SimDiskState>> {
        let state = self.disk.change()?;
        self.check_boot(&state)?;
        Ok(state)
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        let mut state = self.disk.0.state.lock();
        self.check_boot(&state)?;
        Ok(state.file(self.node)?.live.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut state = self.disk.0.state.lock();
        self.check_boot(&state)?;
        let live = &state.file(self.node)?.live;
        let rest = live.get(at as usize..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = self.change()?;
        if state.write_failures.take() || self.disk.is_hit(state.rates.write_failures) {
            state.counts.failed_writes += 1;
            let length = (self.disk.draw() % (bytes.len() as u64 + 1)) as usize;
            state.file(self.node)?.write(&bytes[..length], at);
            return Err(io::Error::other("a write that fails by command"));
        }
        let grown =
            (at + bytes.len() as u64).saturating_sub(state.file(self.node)?.live.len() as u64);
        let free = state.bytes_max.map(|max| max.saturating_sub(state.bytes_held()));
        if let Some(free) = free.filter(|free| *free < grown) {
            state.counts.full_writes += 1;
            // No byte fits if the gap before the bytes takes all free space.
            let length = bytes.len().saturating_sub((grown - free) as usize);
            state.file(self.node)?.write(&bytes[..length], at);
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.file(self.node)?.write(bytes, at);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.change()?;
        let result = self.disk.sync_fails(&mut state);
        let file = state.file(self.node)?;
        if result.is_err() {
            file.forget_unsynced();
            return result;
        }
        file.sync();
        state.counts.file_syncs += 1;
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let mut state = self.change()?;
        state.file(self.node)?.truncate(size);
        Ok(())
    }
}
