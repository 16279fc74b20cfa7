//! Recovery: opens the contents of a data directory, finds the stores and their segments, truncates
//! torn tails, and refuses damage (`proto/spec/embedded-log.md`, "Opening").

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::{Error, Result};

use super::errors::{damage_error, io_error, too_new};
use super::format::{
    FRAME_HEADER_BYTES, FormatError, HEADER_BYTES, STORE_FILE_BYTES, SegmentHeader,
    decode_store_file,
};
use super::journal::JournaledEnds;
use super::options::OpenVerification;
use super::partition::{Active, OpenedPartition, Segment, SegmentIndex, WriteState};
use super::paths::{self, Paths, STORE_FILE};
use super::scan::{SCAN_BYTES, ScanStep, Scanner, was_durable};
use super::store;
use crate::disk::{Disk, DiskFile};

/// Checks of the segments.
#[derive(Clone, Copy)]
pub(super) struct Checks<'a> {
    pub(super) at_open: OpenVerification,
    /// Acknowledged bytes according to the journals.
    pub(super) journaled: &'a JournaledEnds,
}

/// Opens every store in a data directory, with its partitions. The journals must have been
/// replayed.
pub(super) fn open_stores(
    disk: &Arc<dyn Disk>,
    paths: &Paths,
    checks: Checks<'_>,
) -> Result<BTreeMap<StoreId, Vec<OpenedPartition>>> {
    disk.create_dir(&paths.logs).map_err(|error| io_error("make", &paths.logs, &error))?;
    let names = disk.list(&paths.logs).map_err(|error| io_error("list", &paths.logs, &error))?;
    let mut stores = BTreeMap::new();
    for name in names {
        let dir = paths.logs.join(&name);
        if let Some(store) = paths::store_id(&name) {
            stores.insert(store, open_store(disk, &dir, store, checks)?);
        } else if paths::is_journal(&name) {
            // The suffix of a journal equals the suffix of stores to remove.
            continue;
        } else if [paths::NEW, paths::DELETED].iter().any(|ending| name.ends_with(ending)) {
            disk.remove_dir(&dir).map_err(|error| io_error("remove", &dir, &error))?;
        }
    }
    if let std::collections::btree_map::Entry::Vacant(control) =
        stores.entry(PartitionRef::CONTROL.store)
    {
        store::make(disk, paths, PartitionRef::CONTROL.store, PartitionCount(1))?;
        control.insert(vec![OpenedPartition::empty()]);
    }
    for dir in [&paths.logs, &paths.data_dir] {
        disk.sync_dir(dir).map_err(|error| io_error("make durable", dir, &error))?;
    }
    Ok(stores)
}

fn open_store(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    store: StoreId,
    checks: Checks<'_>,
) -> Result<Vec<OpenedPartition>> {
    let path = dir.join(STORE_FILE);
    let file = disk.open(&path).map_err(|error| missing_or_refused(&path, &error))?;
    let mut bytes = vec![0; STORE_FILE_BYTES];
    let read = file.read_at(&mut bytes, 0).map_err(|error| io_error("read", &path, &error))?;
    let count =
        decode_store_file(&bytes[..read], store).map_err(|error| format_error(&path, error))?;
    let mut partitions: Vec<OpenedPartition> =
        count.partitions().map(|_| OpenedPartition::empty()).collect();
    let names = disk.list(dir).map_err(|error| io_error("list", dir, &error))?;
    for name in names {
        let Some(partition) = paths::partition_id(&name) else { continue };
        let Some(place) = partitions.get_mut(partition.0 as usize) else {
            let damage =
                format!("the store has {count} partitions, but there is a directory {name}");
            return Err(damage_error(&path, 0, &damage));
        };
        *place = open_partition(disk, &dir.join(&name), store, partition, checks)?;
    }
    Ok(partitions)
}

fn open_partition(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    store: StoreId,
    partition: PartitionId,
    checks: Checks<'_>,
) -> Result<OpenedPartition> {
    let names = disk.list(dir).map_err(|error| io_error("list", dir, &error))?;
    let mut bases: Vec<Offset> =
        names.iter().filter_map(|name| paths::segment_base(name)).collect();
    bases.sort_unstable();
    let Some((last, sealed)) = bases.split_last() else {
        return Ok(OpenedPartition::empty());
    };
    let at = PartitionRef { store, partition };
    let mut segments = Vec::new();
    let mut append_time = Timestamp::MIN;
    let mut file = SegmentFile::open(disk, dir, at, *last)?;
    file.journaled_bytes = checks.journaled.get(&(at, *last)).copied().unwrap_or_default();
    // To rewrite a damaged header, recovery needs the last append time of the previous segment.
    let last_is_whole = file.header()?.is_ok();
    for (place, base) in sealed.iter().enumerate() {
        let next = bases[place + 1];
        let must_scan = !last_is_whole && next == *last;
        let check = if must_scan { OpenVerification::AllSegments } else { checks.at_open };
        let segment_file = SegmentFile::open(disk, dir, at, *base)?;
        let (segment, last_time) = segment_file.open_sealed(next, check)?;
        append_time = append_time.max(last_time);
        segments.push(segment);
    }
    let is_first = sealed.is_empty();
    let mut opened = file.open_last(disk, dir, append_time, is_first)?;
    segments.append(&mut opened.segments);
    Ok(OpenedPartition { segments, write: opened.write })
}

/// The file of one segment during recovery.
struct SegmentFile {
    file: Arc<dyn DiskFile>,
    path: std::path::PathBuf,
    at: PartitionRef,
    base: Offset,
    bytes: u64,
    /// Acknowledged bytes of the segment according to the journals.
    journaled_bytes: u64,
}

/// Result of a scan of a segment's frames.
struct ScannedSegment {
    index: SegmentIndex,
    /// End of the last whole frame.
    end: u64,
    offset_next: Offset,
    append_time_last: Timestamp,
    /// Bytes that the last frame proves durable; 0 without a frame.
    proved_bytes: u64,
    damage: Option<&'static str>,
}

impl SegmentFile {
    fn open(disk: &Arc<dyn Disk>, dir: &Path, at: PartitionRef, base: Offset) -> Result<Self> {
        let path = paths::segment(dir, base);
        let file = disk.open(&path).map_err(|error| io_error("open", &path, &error))?;
        let bytes = file.size().map_err(|error| io_error("read", &path, &error))?;
        Ok(Self { file, path, at, base, bytes, journaled_bytes: 0 })
    }

    fn unreadable(&self, error: &io::Error) -> Error {
        io_error("read", &self.path, error)
    }

    fn header(&self) -> Result<Result<SegmentHeader, FormatError>> {
        let mut bytes = [0; HEADER_BYTES as usize];
        let read = self.file.read_at(&mut bytes, 0).map_err(|error| self.unreadable(&error))?;
        Ok(SegmentHeader::decode(&bytes[..read], self.at, self.base))
    }

    fn scan(&self, floor: Timestamp) -> Result<ScannedSegment> {
        let mut found = ScannedSegment {
            index: SegmentIndex::default(),
            end: HEADER_BYTES,
            offset_next: self.base,
            append_time_last: floor,
            proved_bytes: 0,
            damage: None,
        };
        let start = (HEADER_BYTES, self.base);
        let mut scanner = Scanner::new(&*self.file, start, self.bytes, SCAN_BYTES);
        loop {
            match scanner.next().map_err(|error| self.unreadable(&error))? {
                ScanStep::Frame(frame) if frame.record.append_time < found.append_time_last => {
                    return Err(damage_error(
                        &self.path,
                        frame.at,
                        "an append time is below the previous one",
                    ));
                }
                ScanStep::Frame(frame) => {
                    found.index.learn(frame.record.offset, frame.at);
                    found.append_time_last = frame.record.append_time;
                    found.proved_bytes = frame.header.synced_bytes;
                }
                ScanStep::End => return Ok(found),
                ScanStep::Damage(_, damage) => {
                    found.damage = Some(damage);
                    return Ok(found);
                }
            }
            (found.end, found.offset_next) = (scanner.at(), scanner.offset_next());
        }
    }

    /// Opens a segment that is followed by another one: every byte of a sealed segment is durable.
    fn open_sealed(&self, next: Offset, check: OpenVerification) -> Result<(Segment, Timestamp)> {
        let header = self.header()?.map_err(|error| format_error(&self.path, error))?;
        let mut segment = Segment { base: self.base, bytes: self.bytes, index: None };
        if check == OpenVerification::ActiveSegments {
            self.check_length(next)?;
            return Ok((segment, header.append_time_floor));
        }
        let scanned = self.scan(header.append_time_floor)?;
        if let Some(damage) = scanned.damage {
            return Err(damage_error(&self.path, scanned.end, damage));
        }
        if scanned.offset_next != next {
            let damage = format!(
                "the segment ends at offset {} and the next segment begins at {next}",
                scanned.offset_next
            );
            return Err(damage_error(&self.path, scanned.end, &damage));
        }
        segment.index = Some(scanned.index);
        Ok((segment, scanned.append_time_last))
    }

    /// Fails if the file is too short for the number of entries between its base and the next one.
    fn check_length(&self, next: Offset) -> Result<()> {
        let frames = next.0.saturating_sub(self.base.0);
        let bytes_min = frames.saturating_mul(FRAME_HEADER_BYTES).saturating_add(HEADER_BYTES);
        if self.bytes >= bytes_min {
            return Ok(());
        }
        let damage =
            format!("the segment has {} bytes, too few for its {frames} entries", self.bytes);
        Err(damage_error(&self.path, self.bytes, &damage))
    }

    /// Opens the last segment, whose tail may be torn.
    fn open_last(
        &self,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        append_time: Timestamp,
        is_first: bool,
    ) -> Result<OpenedPartition> {
        let header = match self.header()? {
            Ok(header) => header,
            Err(FormatError::Version(version)) => return Err(too_new(&self.path, version)),
            Err(FormatError::Damaged(damage)) => {
                self.remake_header(append_time, is_first, damage)?
            }
        };
        let size = self.file.size().map_err(|error| self.unreadable(&error))?;
        let scanned =
            Self { file: self.file.clone(), path: self.path.clone(), bytes: size, ..*self }
                .scan(header.append_time_floor)?;
        if let Some(damage) = scanned.damage {
            self.check_torn(scanned.end, scanned.offset_next, damage)?;
            tracing::warn!(
                path = %self.path.display(),
                kept_bytes = scanned.end,
                cut_bytes = size - scanned.end,
                damage,
                "torn tail cut"
            );
        }
        self.make_durable(&scanned)
            .map_err(|error| io_error("make durable", &self.path, &error))?;
        if scanned.proved_bytes == 0 {
            // If the segment has no frame, nothing proves that the file's name is durable.
            disk.sync_dir(dir).map_err(|error| io_error("make durable", dir, &error))?;
        }
        let (base, bytes) = (self.base, scanned.end);
        let active = Active { base, bytes, synced_bytes: bytes, is_closed: false };
        let write = WriteState {
            active: Some(active),
            offset_next: scanned.offset_next,
            append_time_last: scanned.append_time_last,
            is_deleted: false,
        };
        let index = Some(scanned.index);
        let segment = Segment { base: self.base, bytes: scanned.end, index };
        Ok(OpenedPartition { segments: vec![segment], write })
    }

    /// Fails unless damage at a byte can be a torn write.
    fn check_torn(&self, damaged_at: u64, expected: Offset, damage: &str) -> Result<()> {
        let was_durable = was_durable(&*self.file, damaged_at, expected, self.bytes)
            .map_err(|error| self.unreadable(&error))?;
        if was_durable || damaged_at < self.journaled_bytes {
            return Err(damage_error(&self.path, damaged_at, damage));
        }
        Ok(())
    }

    /// Rewrites the header of a segment that was being created at the power cut.
    fn remake_header(
        &self,
        append_time: Timestamp,
        is_first: bool,
        damage: &'static str,
    ) -> Result<SegmentHeader> {
        self.check_torn(0, self.base, damage)?;
        if is_first && self.base > Offset(0) {
            // Earlier segments were trimmed, so this segment was once whole and durable.
            return Err(damage_error(&self.path, 0, damage));
        }
        tracing::warn!(path = %self.path.display(), damage, "segment without frames recreated");
        let header = SegmentHeader { at: self.at, base: self.base, append_time_floor: append_time };
        let write = || {
            self.file.truncate(0)?;
            self.file.write_at(&header.encode(), 0)
        };
        write().map_err(|error| io_error("write", &self.path, &error))?;
        Ok(header)
    }

    /// Truncates the torn tail, rewrites the bytes that no frame proves durable, and syncs the
    /// file.
    fn make_durable(&self, scanned: &ScannedSegment) -> io::Result<()> {
        if scanned.damage.is_some() {
            self.file.truncate(scanned.end)?;
        }
        let mut unproved = vec![0; (scanned.end - scanned.proved_bytes) as usize];
        let read = self.file.read_at(&mut unproved, scanned.proved_bytes)?;
        self.file.write_at(&unproved[..read], scanned.proved_bytes)?;
        self.file.sync_data()
    }
}

fn format_error(path: &Path, error: FormatError) -> Error {
    match error {
        FormatError::Damaged(damage) => damage_error(path, 0, damage),
        FormatError::Version(version) => too_new(path, version),
    }
}

fn missing_or_refused(path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => damage_error(path, 0, "the segment file is missing"),
        _ => io_error("open", path, error),
    }
}
