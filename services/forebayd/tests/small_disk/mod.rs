//! A disk that is really full: a small tmpfs, in a separate mount namespace if necessary.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Set for a test that runs again inside a namespace in which it may mount.
const INNER: &str = "FOREBAY_TEST_MAY_MOUNT";

/// A separate file system; unmounted when the test ends.
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts a file system of this size; returns `None` if this process may not mount.
    pub fn mount(bytes: usize) -> Option<Self> {
        Self::mount_with(&format!("size={bytes}"))
    }

    /// Mounts a file system without room for even an empty file or folder; returns `None` if this
    /// process may not mount.
    #[allow(dead_code)] // Some test binaries do not use this function.
    pub fn mount_without_room() -> Option<Self> {
        // The root folder takes the only inode.
        Self::mount_with("nr_inodes=1")
    }

    fn mount_with(options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "forebay-test"])
            .arg(dir.path())
            .output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self(dir))
    }

    /// Makes room in a file system that was mounted without room.
    #[allow(dead_code)] // Some test binaries do not use this function.
    pub fn make_room(&self) {
        let mut remount = Command::new("mount");
        remount.args(["-o", "remount,nr_inodes=100000"]).arg(self.path());
        assert!(remount.status().unwrap().success());
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills this many bytes, or all free space if there is less.
    pub fn fill(&self, bytes: usize) {
        let result = std::fs::write(self.filler(), vec![1; bytes]);
        let is_full = |error: std::io::Error| error.kind() == std::io::ErrorKind::StorageFull;
        assert!(result.err().is_none_or(is_full));
    }

    pub fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Runs a test again in a user and mount namespace, where an ordinary user may mount a tmpfs.
pub fn run_again_where_mounting_is_permitted(test: &str) {
    let fix = "run it as root, or allow unprivileged user namespaces";
    assert!(std::env::var_os(INNER).is_none(), "this test mounts a tmpfs and may not; fix: {fix}");
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INNER, "1")
        .output()
        .unwrap_or_else(|error| panic!("the test was not run in a namespace: {error}; fix: {fix}"));
    let [stdout, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    print!("{stdout}");
    eprint!("{errors}");
    assert!(output.status.success(), "it did not pass in a namespace of its own; fix: {fix}");
    // A name that selects no test passes, too.
    assert!(stdout.contains("1 passed"), "no test has the name `{test}`; fix the name");
}
