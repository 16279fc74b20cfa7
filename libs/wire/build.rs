//! Generates `forebay.v1` from `proto/forebay/v1`. The machine needs no protoc.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("../../proto");
    let package = root.join("forebay/v1");
    // Cargo also watches the folder, so a new file triggers a rebuild.
    println!("cargo::rerun-if-changed={}", package.display());
    let mut files: Vec<PathBuf> = std::fs::read_dir(&package)?
        .map(|file| file.map(|file| file.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let descriptors = protox::compile(&files, [root])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .bytes(".")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    Ok(())
}
