//! Files and directories of a simulated disk, each with its live and its durable form.

use std::collections::BTreeMap;

pub(super) type NodeId = u64;

/// The root directory.
pub(super) const ROOT: NodeId = 0;

const SECTOR_BYTES: usize = 512;

/// Unsynced data that remains after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// None of it.
    Everything,
    /// A random prefix of each file's operations, the last one torn at a random byte.
    TornPrefix,
    /// Random 512-byte sectors of each file's writes, with zeros between them.
    RandomSectors,
}

pub(super) enum Node {
    File(FileNode),
    Dir(Dir),
}

#[derive(Default)]
pub(super) struct Dir {
    live: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    /// Name changes since the last sync, in order: each adds or removes a name.
    unsynced: Vec<(String, Option<NodeId>)>,
}

impl Dir {
    pub(super) fn names(&self) -> &BTreeMap<String, NodeId> {
        &self.live
    }

    /// Points a name to a node, or to none; returns the previous node.
    pub(super) fn set(&mut self, name: String, node: Option<NodeId>) -> Option<NodeId> {
        self.unsynced.push((name.clone(), node));
        set(&mut self.live, name, node)
    }

    pub(super) fn sync(&mut self) {
        self.unsynced.clear();
        self.durable.clone_from(&self.live);
    }

    /// Leaves what a power cut leaves: a prefix of the changes, because file systems journal names.
    pub(super) fn power_cut(&mut self, loss: Loss, draw: impl FnOnce() -> u64) {
        let unsynced = std::mem::take(&mut self.unsynced);
        if loss != Loss::Everything {
            let count = (draw() % (unsynced.len() as u64 + 1)) as usize;
            for (name, node) in unsynced.into_iter().take(count) {
                set(&mut self.durable, name, node);
            }
        }
        self.live.clone_from(&self.durable);
    }
}

fn set(names: &mut BTreeMap<String, NodeId>, name: String, node: Option<NodeId>) -> Option<NodeId> {
    match node {
        Some(node) => names.insert(name, node),
        None => names.remove(&name),
    }
}

pub(super) struct FileNode {
    pub(super) live: Vec<u8>,
    /// Whether a name refers to the file; open handles may outlive the name.
    pub(super) is_linked: bool,
    durable: Vec<u8>,
    unsynced: Vec<UnsyncedChange>,
}

enum UnsyncedChange {
    Write { at: usize, bytes: Vec<u8> },
    Truncate(usize),
}

impl Default for FileNode {
    fn default() -> Self {
        Self { live: Vec::new(), is_linked: true, durable: Vec::new(), unsynced: Vec::new() }
    }
}

fn write(image: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if image.len() < at + bytes.len() {
        image.resize(at + bytes.len(), 0);
    }
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

impl UnsyncedChange {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => write(image, *at, bytes),
            Self::Truncate(size) => image.resize(*size, 0),
        }
    }

    /// Applies a torn form: the first bytes of a write; a truncation fully or not at all.
    fn apply_prefix(&self, image: &mut Vec<u8>, draw: u64) {
        match self {
            Self::Write { at, bytes } => {
                write(image, *at, &bytes[..(draw % (bytes.len() as u64 + 1)) as usize]);
            }
            Self::Truncate(_) if draw.is_multiple_of(2) => self.apply(image),
            Self::Truncate(_) => {}
        }
    }

    /// Applies a random subset of the sectors that a write touches; other sectors keep their bytes.
    fn apply_sectors(&self, image: &mut Vec<u8>, mut draw: impl FnMut() -> u64) {
        let Self::Write { at, bytes } = self else {
            return self.apply_prefix(image, draw());
        };
        let mut from = 0;
        while from < bytes.len() {
            let to = (from + SECTOR_BYTES - (at + from) % SECTOR_BYTES).min(bytes.len());
            if draw().is_multiple_of(2) {
                write(image, at + from, &bytes[from..to]);
            }
            from = to;
        }
    }
}

impl FileNode {
    pub(super) fn write(&mut self, bytes: &[u8], at: u64) {
        let at = at as usize;
        write(&mut self.live, at, bytes);
        self.unsynced.push(UnsyncedChange::Write { at, bytes: bytes.to_vec() });
    }

    pub(super) fn truncate(&mut self, size: u64) {
        self.live.resize(size as usize, 0);
        self.unsynced.push(UnsyncedChange::Truncate(size as usize));
    }

    pub(super) fn sync(&mut self) {
        for operation in self.unsynced.drain(..) {
            operation.apply(&mut self.durable);
        }
    }

    pub(super) fn forget_unsynced(&mut self) {
        self.unsynced.clear();
    }

    /// Makes the live bytes durable.
    pub(super) fn make_durable(&mut self) {
        self.unsynced.clear();
        self.durable = self.live.clone();
    }

    /// Leaves what a power cut leaves; returns whether part of the unsynced data remains.
    pub(super) fn power_cut(&mut self, loss: Loss, mut draw: impl FnMut() -> u64) -> bool {
        let unsynced = std::mem::take(&mut self.unsynced);
        let before = self.durable.clone();
        match loss {
            Loss::Everything => {}
            Loss::TornPrefix => {
                let count = (draw() % (unsynced.len() as u64 + 1)) as usize;
                for operation in &unsynced[..count] {
                    operation.apply(&mut self.durable);
                }
                if let Some(torn) = unsynced.get(count) {
                    torn.apply_prefix(&mut self.durable, draw());
                }
            }
            Loss::RandomSectors => {
                for operation in &unsynced {
                    operation.apply_sectors(&mut self.durable, &mut draw);
                }
            }
        }
        self.live = self.durable.clone();
        self.durable != before && !unsynced.is_empty()
    }
}
