//! The C ABI as C programs see it: the header compiles without a warning, its structs have the
//! layouts of `src/abi.rs`, and a program that uses the header runs against a real `forebayd`.

#[path = "../src/abi.rs"]
#[allow(missing_docs, dead_code)]
mod abi;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use abi::*;
use forebay_testkit::tree;

/// Returns the folder of the library that this package has just built.
fn library_folder() -> PathBuf {
    tree::built("libforebay_ffi.so").unwrap().parent().unwrap().to_owned()
}

/// Compiles smoke.c against the header and the library.
fn compile(folder: &Path) -> PathBuf {
    let program = folder.join("smoke");
    let library = library_folder();
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"]).arg(&program);
    cc.arg("-I").arg(tree::find("clients/c/include").unwrap());
    cc.arg(tree::find("clients/c/tests/smoke.c").unwrap());
    cc.arg("-L").arg(&library).arg("-lforebay_ffi");
    cc.arg(format!("-Wl,-rpath,{}", library.display()));
    let output = cc.output().expect("a C compiler (cc); fix: apt-get install gcc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Returns the compiled program; it loads the library of its own path, not an older one that cargo
/// names.
fn smoke(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// A real node, killed on drop.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Starts a node that stores snapshots at this URL.
fn start_node(folder: &Path, snapshots: &str) -> (Node, String) {
    let mut forebayd = Command::new(tree::built("forebayd").unwrap());
    forebayd.args(["dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.join("data"));
    forebayd.args(["--snapshot-interval", "1s", "--snapshots", snapshots]);
    forebayd.stdout(Stdio::piped()).stderr(fs::File::create(folder.join("log")).unwrap());
    let child = forebayd.spawn().unwrap();
    let mut node = Node(child);
    let mut line = String::new();
    BufReader::new(node.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("forebayd ready ").unwrap_or_else(|| {
        panic!("{line}{}", fs::read_to_string(folder.join("log")).unwrap());
    });
    let address = address.to_owned();
    (node, address)
}

/// The shared copies of the readers in a folder, removed on drop.
struct Copies<'a>(&'a Path);

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        for file in files.filter(|file| file.file_name().as_bytes().starts_with(b"forebay-")) {
            let mut header = [0; 1_024];
            // Each file contains the path of the header in this folder.
            let read = fs::File::open(file.path())
                .and_then(|opened_file| opened_file.read_at(&mut header, 1_024));
            let name = header.split(|byte| *byte == 0).next().unwrap_or_default();
            if read.is_ok() && Path::new(OsStr::from_bytes(name)).starts_with(self.0) {
                fs::remove_file(file.path()).unwrap();
            }
        }
    }
}

#[test]
fn c_program_writes_reads_gathers_and_closes() {
    let folder = tempfile::tempdir().unwrap();
    let _copies = Copies(folder.path());
    let program = compile(folder.path());
    let snapshots = format!("file://{}", folder.path().join("snapshots").display());
    let (_node, address) = start_node(folder.path(), &snapshots);
    let kept_folder = folder.path().join("kept");
    let output =
        Command::new(program).arg(address).arg(kept_folder).arg(snapshots).output().unwrap();
    let (printed, printed_errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("smoke: OK"), "{printed}{printed_errors}");
}

#[test]
fn header_and_library_agree_on_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    let output = smoke(compile(folder.path())).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let sizes = [
        ("fb_text", size_of::<FbText>()),
        ("fb_bytes", size_of::<FbBytes>()),
        ("fb_error", size_of::<FbError>()),
        ("fb_value", size_of::<FbValue>()),
        ("fb_key", size_of::<FbKey>()),
        ("fb_keys", size_of::<FbKeys>()),
        ("fb_read_options", size_of::<FbReadOptions>()),
        ("fb_field_spec", size_of::<FbFieldSpec>()),
        ("fb_store_options", size_of::<FbStoreOptions>()),
        ("fb_store_spec", size_of::<FbStoreSpec>()),
        ("fb_alteration", size_of::<FbAlteration>()),
        ("fb_op", size_of::<FbOp>()),
        ("fb_change", size_of::<FbChange>()),
        ("fb_outcome", size_of::<FbOutcome>()),
        ("fb_reader_options", size_of::<FbReaderOptions>()),
        ("fb_scalar", size_of::<FbScalar>()),
        ("fb_gather_field", size_of::<FbGatherField>()),
        ("fb_packed", size_of::<FbPacked>()),
        ("fb_sink", size_of::<FbSink>()),
        ("fb_stream_options", size_of::<FbStreamOptions>()),
        ("fb_stream_summary", size_of::<FbStreamSummary>()),
        ("fb_event_query", size_of::<FbEventQuery>()),
        ("fb_error.pending", offset_of!(FbError, pending)),
        ("fb_error.field", offset_of!(FbError, field)),
        ("fb_keys.partition_ends", offset_of!(FbKeys, partition_ends)),
        ("fb_read_options.token", offset_of!(FbReadOptions, token)),
        ("fb_field_spec.fallback", offset_of!(FbFieldSpec, fallback)),
        ("fb_field_spec.index", offset_of!(FbFieldSpec, index)),
        ("fb_store_spec.options", offset_of!(FbStoreSpec, options)),
        ("fb_alteration.options", offset_of!(FbAlteration, options)),
        ("fb_op.value", offset_of!(FbOp, value)),
        ("fb_change.if_newer", offset_of!(FbChange, if_newer)),
        ("fb_outcome.error", offset_of!(FbOutcome, error)),
        (
            "fb_reader_options.allow_incomplete_reads",
            offset_of!(FbReaderOptions, allow_incomplete_reads),
        ),
        ("fb_reader_options.checkpoint_interval_ms", {
            offset_of!(FbReaderOptions, checkpoint_interval_ms)
        }),
        ("fb_reader_options.memory_limit", { offset_of!(FbReaderOptions, memory_limit) }),
        ("fb_reader_options.spill_limit", offset_of!(FbReaderOptions, spill_limit)),
        ("fb_reader_options.snapshots", offset_of!(FbReaderOptions, snapshots)),
        ("fb_store_options.log_retention_us", offset_of!(FbStoreOptions, log_retention_us)),
        ("fb_store_options.log_retention_bytes", offset_of!(FbStoreOptions, log_retention_bytes)),
        ("fb_sink.ticket", offset_of!(FbSink, ticket)),
        ("fb_stream_summary.token", offset_of!(FbStreamSummary, token)),
        ("fb_event_query.column", offset_of!(FbEventQuery, column)),
        ("fb_event_query.start_us", offset_of!(FbEventQuery, start_us)),
        ("fb_event_query.order_by", offset_of!(FbEventQuery, order_by)),
        ("fb_scalar.real", offset_of!(FbScalar, real)),
    ];
    let expected: Vec<_> = sizes.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

/// Proves that the library exports every function of the header, and no others.
#[test]
fn header_declares_exactly_the_exported_functions() {
    let header = include_str!("../include/forebay.h");
    let mut exported = Vec::new();
    for source in fs::read_dir(tree::find("clients/c/src").unwrap()).unwrap() {
        let path = source.unwrap().path();
        // The folder `jni` holds entry points of Java, which the header does not declare.
        if path.is_dir() {
            continue;
        }
        let source = fs::read_to_string(path).unwrap();
        exported.extend(functions(&source, "extern \"C\" fn "));
    }
    let mut declared = functions(header, "int32_t ");
    declared.extend(functions(header, "void "));
    exported.sort();
    declared.sort();
    assert_eq!(declared, exported);
}

/// Returns the names `fb_*` that follow a mark and open a list of arguments.
fn functions(text: &str, mark: &str) -> Vec<String> {
    let name = |line: &str| {
        let name = line.split_once(mark)?.1.split_once('(')?.0;
        name.starts_with("fb_").then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}
