//! Copies of unchanged files.

use std::path::Path;

use forebay_core::rows_digest::RowsDigest;
use forebay_core::{Error, ErrorCode, Result};
use forebay_shard::{Export, ExportMode, Import, PartBlock, PartEnd, PartSource};
use forebay_testkit::random::SeededRng;
use forebay_wire::shard_copy::{FileKind, PieceDigest, file_kind};
use forebay_wire::v1;

use super::support::*;
use super::{MODES, copy_all, fill_replica, folder_of_copy, freeze, write};

/// Block size into which the test divides pieces.
const BLOCK: usize = 96 << 10;

/// A source that sends the pieces of a file in small blocks, and breaks off after some blocks.
struct InterruptedSource<'l> {
    pieces: Vec<(Vec<u8>, PartEnd)>,
    blocks_left: &'l mut usize,
    /// Bytes of the first piece that were sent.
    sent_bytes: usize,
}

impl PartSource for InterruptedSource<'_> {
    type Block = Vec<u8>;

    fn next_block(&mut self) -> Result<PartBlock<Vec<u8>>> {
        if *self.blocks_left == 0 {
            return Err(Error::unavailable("it breaks off"));
        }
        *self.blocks_left -= 1;
        let (piece, end) = self.pieces.first().unwrap();
        let to = piece.len().min(self.sent_bytes + BLOCK);
        let bytes = piece[self.sent_bytes..to].to_vec();
        let end = (to == piece.len()).then_some(*end);
        self.sent_bytes = to;
        if end.is_some() {
            self.pieces.remove(0);
            self.sent_bytes = 0;
        }
        Ok(PartBlock { bytes, end, was_compressed: false })
    }
}

/// Reads the pieces of a file after its first `behind_bytes` bytes.
fn pieces(export: &Export, file: usize, behind_bytes: u64) -> Vec<(Vec<u8>, PartEnd)> {
    let mut read = export.file(file, behind_bytes).unwrap();
    let (mut pieces, mut piece) = (Vec::new(), Vec::new());
    loop {
        let (block, end) = read.next_block().unwrap();
        piece.extend(block);
        let Some(end) = end else { continue };
        pieces.push((std::mem::take(&mut piece), end));
        if end.is_range_end {
            return pieces;
        }
    }
}

fn all_bytes(export: &Export) -> Vec<Vec<u8>> {
    let bytes = |file| pieces(export, file, 0).into_iter().flat_map(|(bytes, _)| bytes).collect();
    (0..export.plan().files.len()).map(bytes).collect()
}

/// Copies the rest, at most `blocks` blocks; returns whether everything was copied.
fn copy_torn(export: &Export, import: &Import, blocks: &mut usize) -> bool {
    (0..export.plan().files.len()).all(|file| {
        let progress = import.range(file);
        if progress.is_ended {
            return true;
        }
        let pieces = pieces(export, file, progress.bytes);
        write(import, file, InterruptedSource { pieces, blocks_left: blocks, sent_bytes: 0 })
    })
}

#[test]
fn interrupted_copy_resumes_after_whole_pieces() {
    let from = tempfile::tempdir().unwrap();
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 20_000);
    let export = freeze(&replica, &from.path().join("copies/1"), ExportMode::Files);
    let (bytes, plan) = (all_bytes(&export), export.plan());
    let lengths: Vec<_> = (0..bytes.len()).map(|file| pieces(&export, file, 0)).collect();
    let blocks: usize =
        lengths.iter().flatten().map(|(piece, _)| piece.len().div_ceil(BLOCK)).sum();
    assert!(lengths.iter().any(|pieces| pieces.len() > 1), "a file of several pieces");
    assert!(blocks > 30, "{blocks}");
    for cut_after in 0..blocks {
        let to = tempfile::tempdir().unwrap();
        let directory = directory(to.path());
        let import = directory.begin_import(plan.clone()).unwrap();
        assert!(!copy_torn(&export, &import, &mut cut_after.clone()), "{cut_after}");
        let ranges = import.ranges();
        drop(import);
        let import = directory.resume_import("users", AT.partition).unwrap().unwrap();
        assert_eq!(import.ranges(), ranges, "{cut_after}");
        let mut durable = ranges.iter().zip(&lengths);
        assert!(durable.all(|(progress, pieces)| {
            let ends = pieces.iter().scan(0, |end, (piece, _)| {
                *end += piece.len() as u64;
                Some(*end)
            });
            [0].into_iter().chain(ends).any(|end| end == progress.bytes)
        }));
        assert!(copy_torn(&export, &import, &mut usize::MAX.clone()), "{cut_after}");
        let shard = folder_of_copy(to.path()).join("shard");
        for (file, bytes) in plan.files.iter().zip(&bytes) {
            assert!(
                std::fs::read(shard.join(&file.name)).unwrap() == *bytes,
                "{cut_after}: {file:?}"
            );
        }
        directory.take_in(import).unwrap();
    }
}

/// A source that sends a single piece, with any end.
struct SinglePiece(Option<(Vec<u8>, PartEnd)>);

impl PartSource for SinglePiece {
    type Block = Vec<u8>;

    fn next_block(&mut self) -> Result<PartBlock<Vec<u8>>> {
        let (bytes, end) = self.0.take().unwrap();
        Ok(PartBlock { bytes, end: Some(end), was_compressed: false })
    }
}

fn end_of(bytes: &[u8], is_range_end: bool) -> PartEnd {
    let mut digest = PieceDigest::default();
    digest.add(bytes);
    PartEnd { digest: RowsDigest { rows: 0, sum: digest.sum() }, is_range_end }
}

#[test]
fn piece_that_differs_from_its_digest_is_refused() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 20_000);
    let export = freeze(&replica, &from.path().join("copies/1"), ExportMode::Files);
    let directory = directory(to.path());
    let import = directory.begin_import(export.plan().clone()).unwrap();
    let assert_refused = |file: usize, bytes: Vec<u8>, end: PartEnd| {
        let error = import.write_part(file, &mut SinglePiece(Some((bytes, end)))).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
        assert_eq!(import.range(file).bytes, 0, "nothing of it counts");
    };
    let file_of = |kind| {
        let is_of = |file: &v1::CopyFile| file_kind(&file.name) == Some(kind);
        export.plan().files.iter().position(is_of).unwrap()
    };
    // The test flips each bit of a small file, and some bits of a large file.
    let (current, table) = (file_of(FileKind::Current), file_of(FileKind::Table));
    let mut dice = SeededRng::new(3);
    for file in [current, table] {
        let (bytes, end) = pieces(&export, file, 0).remove(0);
        let bits = bytes.len() * 8;
        let flips: Vec<_> = match bits < 1_000 {
            true => (0..bits).collect(),
            false => (0..50).map(|_| dice.below(bits)).collect(),
        };
        for bit in flips {
            let mut flipped_bytes = bytes.clone();
            flipped_bytes[bit / 8] ^= 1 << (bit % 8);
            assert_refused(file, flipped_bytes, end);
        }
        let shorter_bytes = bytes[..bytes.len() - 1].to_vec();
        assert_refused(file, shorter_bytes.clone(), end);
        assert_refused(file, shorter_bytes.clone(), end_of(&shorter_bytes, true));
        assert_refused(file, bytes.clone(), PartEnd { is_range_end: !end.is_range_end, ..end });
        let digest = RowsDigest { rows: 1, ..end.digest };
        assert_refused(file, bytes.clone(), PartEnd { digest, ..end });
    }
    let (mut longer_bytes, _) = pieces(&export, current, 0).remove(0);
    longer_bytes.push(0);
    assert_refused(current, longer_bytes.clone(), end_of(&longer_bytes, true));
    assert_refused(current, longer_bytes.clone(), end_of(&longer_bytes, false));
    assert_refused(current, Vec::new(), end_of(&[], false));
    let error = import.write_part(1_000, &mut SinglePiece(None)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    // The refused pieces do not prevent the correct ones.
    copy_all(&export, &import);
    directory.take_in(import).unwrap();
    assert!(world.resume(to.path()).live() == replica.live());
}

#[test]
fn files_with_foreign_names_are_refused() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 10);
    let export = freeze(&replica, &from.path().join("copies/1"), ExportMode::Files);
    let import_root = to.path().join("inside");
    let directory = directory(&import_root);
    let sound = export.plan();
    let file_named = |name: &str| v1::CopyFile { name: name.to_owned(), bytes: 1 };
    let plan_with =
        |file| v1::CopyPlan { files: [&sound.files[..], &[file]].concat(), ..sound.clone() };
    let plan_without = |kind| {
        let files = sound.files.iter().filter(|file| file_kind(&file.name) != Some(kind));
        v1::CopyPlan { files: files.cloned().collect(), ..sound.clone() }
    };
    let absolute = to.path().join("000012.sst");
    let ranges = vec![v1::CopyRange::default()];
    let mut manifests = plan_without(FileKind::Current);
    manifests.files.push(file_named("MANIFEST-999999"));
    let mut plans = vec![
        plan_without(FileKind::Current),
        plan_without(FileKind::Manifest),
        plan_with(file_named("MANIFEST-999999")),
        manifests,
        plan_with(sound.files[0].clone()),
        v1::CopyPlan { ranges, ..sound.clone() },
        v1::CopyPlan { position: None, ..sound.clone() },
    ];
    let names =
        ["../000012.sst", "..", ".", "", "/000012.sst", "a/000012.sst", "LOCK", "000012.log"];
    plans
        .extend(names.into_iter().chain(absolute.to_str()).map(|name| plan_with(file_named(name))));
    for plan in plans {
        let error = directory.begin_import(plan.clone()).err().unwrap();
        assert_eq!(error.code(), ErrorCode::Corrupt, "{plan:?}: {error}");
    }
    assert!(!import_root.exists(), "nothing was begun");
    // A copy whose plan was damaged on the disk is not resumed.
    drop(directory.begin_import(sound.clone()).unwrap());
    let plan = folder_of_copy(&import_root).join("plan");
    let damaged_plan = prost::Message::encode_to_vec(&plan_with(file_named("../000012.sst")));
    std::fs::write(plan, damaged_plan).unwrap();
    assert!(directory.resume_import("users", AT.partition).unwrap().is_none());
}

/// Number of tables that the engine opens with a shard; it would miss other tables only later.
const TABLES_OPENED: usize = 16;

/// Returns a frozen shard that was copied as rows, so that each part is a separate table.
fn frozen_of_many_tables(world: &World, dir: &Path) -> Export {
    let (from, to) = (dir.join("from"), dir.join("to"));
    let replica = fill_replica(world, &from, 120_000);
    let rows = freeze(&replica, &dir.join("copies/1"), MODES[0]);
    let directory = directory(&to);
    let import = directory.begin_import(rows.plan().clone()).unwrap();
    copy_all(&rows, &import);
    directory.take_in(import).unwrap();
    freeze(&world.resume(&to), &dir.join("copies/2"), ExportMode::Files)
}

#[test]
fn files_of_an_invalid_or_another_shard_are_refused() {
    let from = tempfile::tempdir().unwrap();
    let world = World::new();
    let export = frozen_of_many_tables(&world, from.path());
    let sound = export.plan();
    let import_error = |plan: v1::CopyPlan| {
        let to = tempfile::tempdir().unwrap();
        let directory = directory(to.path());
        let import = directory.begin_import(plan.clone()).unwrap();
        for (place, file) in plan.files.iter().enumerate() {
            let from = sound.files.iter().position(|other| other.name == file.name).unwrap();
            let mut pieces = pieces(&export, from, 0);
            if file.bytes < sound.files[from].bytes {
                let shorter_bytes = vec![0; file.bytes as usize];
                pieces = vec![(shorter_bytes.clone(), end_of(&shorter_bytes, true))];
            }
            let mut blocks = usize::MAX;
            assert!(write(
                &import,
                place,
                InterruptedSource { pieces, blocks_left: &mut blocks, sent_bytes: 0 }
            ));
        }
        let error = directory.take_in(import).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
        assert!(!std::fs::read_dir(to.path()).unwrap().any(|name| name.unwrap().path().is_dir()));
        error
    };
    let tables = sound.files.iter().filter(|file| file.name.ends_with(".sst")).count();
    assert!(tables > TABLES_OPENED, "{tables}");
    for place in [0, tables / 2, tables - 1, tables, tables + 1] {
        let mut shorter_plan = sound.clone();
        shorter_plan.files[place].bytes -= 1;
        import_error(shorter_plan);
        if sound.files[place].name.ends_with(".sst") {
            let mut plan_without_file = sound.clone();
            plan_without_file.files.remove(place);
            let error = import_error(plan_without_file);
            assert!(error.message().contains("no shard"), "{error}");
        }
    }
    import_error(v1::CopyPlan { partition: sound.partition + 1, ..sound.clone() });
    import_error(v1::CopyPlan { store_id: sound.store_id + 1, ..sound.clone() });
    import_error(v1::CopyPlan { log_id: sound.log_id + 1, ..sound.clone() });
    let offset = sound.position.unwrap().offset;
    for offset in [offset - 1, offset + 1] {
        let position = sound.position.map(|position| v1::Position { offset, ..position });
        import_error(v1::CopyPlan { position, ..sound.clone() });
    }
    // A copy that has lost bytes on the disk since they arrived is refused, too.
    let to = tempfile::tempdir().unwrap();
    let directory = directory(to.path());
    let import = directory.begin_import(sound.clone()).unwrap();
    copy_all(&export, &import);
    let table = folder_of_copy(to.path()).join("shard").join(&sound.files[tables - 1].name);
    let file = std::fs::File::options().write(true).open(table).unwrap();
    file.set_len(sound.files[tables - 1].bytes - 1).unwrap();
    let error = directory.take_in(import).unwrap_err();
    assert!(error.code() == ErrorCode::Corrupt && error.message().contains("bytes"), "{error}");
}

#[test]
fn import_copies_lost_durable_files_again() {
    let from = tempfile::tempdir().unwrap();
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 1_000);
    for (number, mode) in MODES.into_iter().enumerate() {
        let to = tempfile::tempdir().unwrap();
        let export = freeze(&replica, &from.path().join(format!("copies/{number}")), mode);
        let directory = directory(to.path());
        copy_all(&export, &directory.begin_import(export.plan().clone()).unwrap());
        let folder = folder_of_copy(to.path());
        let lost_table = a_table(&folder).or_else(|| a_table(&folder.join("shard"))).unwrap();
        std::fs::remove_file(lost_table).unwrap();
        assert!(directory.resume_import("users", AT.partition).unwrap().is_none());
        assert!(!folder.exists());
    }
}

fn a_table(dir: &Path) -> Option<std::path::PathBuf> {
    let mut names = std::fs::read_dir(dir).ok()?.map(|name| name.unwrap().path());
    names.find(|path| path.extension().is_some_and(|extension| extension == "sst"))
}

#[test]
fn frozen_shard_preserves_its_bytes_and_reports_missing_files() {
    let from = tempfile::tempdir().unwrap();
    let world = World::new();
    let mut replica = fill_replica(&world, from.path(), 20_000);
    let place = from.path().join("copies/1");
    let export = freeze(&replica, &place, ExportMode::Files);
    let before = all_bytes(&export);
    drop(export);
    (0..50).for_each(|_| drop(replica.step()));
    replica.writer.shard().flush().unwrap();
    replica.writer.shard().compact();
    let export = Export::open(&place).unwrap();
    assert!(all_bytes(&export) == before);
    let files = export.plan().files.len();
    let code_of = |error: Option<Error>| error.unwrap().code();
    assert_eq!(code_of(export.file(files, 0).err()), ErrorCode::InvalidArgument);
    let offset = export.plan().files[0].bytes + 1;
    assert_eq!(code_of(export.file(0, offset).err()), ErrorCode::InvalidArgument);
    assert_eq!(code_of(export.rows(0, None).err()), ErrorCode::InvalidArgument);
    let (rest, end) = export.file(0, offset - 1).unwrap().next_block().unwrap();
    assert!(rest.is_empty() && end.is_some_and(|end| end.is_range_end));
    let table = place.join("shard").join(&export.plan().files[0].name);
    std::fs::write(&table, b"short").unwrap();
    assert_eq!(code_of(export.file(0, 0).unwrap().next_block().err()), ErrorCode::Corrupt);
}
