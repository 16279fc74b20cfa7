//! The checked-in corpus: it is what the golden vectors give (`UPDATE_VECTORS=1` writes it anew),
//! and every input in it holds, without a fuzzer too.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use forebay_fuzz::{LAYOUT_NAMES, TARGETS, sound_segment};
use serde_json::Value as Json;

type Inputs = BTreeMap<String, Vec<u8>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn vectors(name: &str) -> Json {
    let path = root().join("../../proto/vectors").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap()
}

fn unhex(hex: &Json) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn input(how: usize, bytes: &[u8]) -> Vec<u8> {
    [&[how as u8], bytes].concat()
}

fn file_name(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

fn rows() -> Inputs {
    let held = vectors("row.json");
    let mut inputs = Inputs::new();
    for list in ["rows", "refused"] {
        for row in held[list].as_array().unwrap() {
            let of = |layout: &str| row["definition"] == *layout;
            let Some(which) = LAYOUT_NAMES.iter().position(|layout| of(layout)) else { continue };
            let name = file_name(row["name"].as_str().unwrap());
            inputs.insert(name, input(which, &unhex(&row["row_hex"])));
        }
    }
    inputs
}

fn entries() -> Inputs {
    let mut inputs = Inputs::new();
    for entry in vectors("entry.json")["entries"].as_array().unwrap() {
        let name = file_name(entry["name"].as_str().unwrap());
        let frame = unhex(&entry["frame"]);
        inputs.insert(format!("{name}-body"), input(1, &frame[24..]));
        inputs.insert(name, input(0, &frame));
    }
    inputs
}

fn tokens() -> Inputs {
    let mut inputs = Inputs::new();
    for (number, token) in vectors("token.json")["tokens"].as_array().unwrap().iter().enumerate() {
        let token = unhex(&token["token"]);
        inputs.insert(format!("token-{number}-unsealed"), input(1, &token[..token.len() - 4]));
        inputs.insert(format!("token-{number}"), input(0, &token));
    }
    inputs
}

fn segments() -> Inputs {
    let sound = sound_segment();
    let inputs = [
        ("sound", input(0, &sound)),
        ("empty", input(0, &[])),
        ("torn", input(0, &sound[..sound.len() - 5])),
        ("twice", input(1, &sound)),
        ("garbage-behind", input(1, &[0x5a; 48])),
        ("edited-magic", input(2, &[0, 0, b'X'])),
        ("edited-length", input(2, &[40, 0, 0xff, 41, 0, 0xff])),
        ("edited-entry", input(2, &[80, 0, 0])),
    ];
    inputs.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

fn held(target: &str) -> Inputs {
    let folder = root().join("corpus").join(target);
    let files = fs::read_dir(&folder).into_iter().flatten().flatten();
    let named = |file: fs::DirEntry| {
        (file.file_name().to_string_lossy().into_owned(), fs::read(file.path()).unwrap())
    };
    files.map(named).collect()
}

fn is_update() -> bool {
    std::env::var_os("UPDATE_VECTORS").is_some()
}

#[test]
fn the_corpus_starts_from_the_vectors() {
    let made = [rows(), entries(), tokens(), segments()];
    for ((target, _), inputs) in TARGETS.iter().zip(made) {
        assert!(inputs.len() >= 4, "{target} starts from {} inputs", inputs.len());
        if is_update() {
            let folder = root().join("corpus").join(target);
            fs::create_dir_all(&folder).unwrap();
            inputs.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).unwrap());
        }
        let held = held(target);
        for (name, bytes) in inputs {
            let fix = "run: UPDATE_VECTORS=1 cargo test -p forebay-fuzz";
            assert!(held.get(&name) == Some(&bytes), "corpus/{target}/{name} differs; {fix}");
        }
    }
}

/// Inputs that a fuzzer once found to break a promise stay in the corpus, under what they broke.
#[test]
fn every_input_of_the_corpus_holds() {
    for (target, run) in TARGETS {
        let inputs = held(target);
        assert!(is_update() || !inputs.is_empty(), "no corpus for {target}");
        for (name, bytes) in inputs {
            println!("corpus/{target}/{name}");
            run(&bytes);
        }
    }
}

#[test]
#[should_panic(expected = "the canary is found")]
fn the_canary_is_there_to_be_found() {
    forebay_fuzz::canary(b"reed warbler");
}
