//! The rule `rocksdb-version`: the prebuilt RocksDB, the bindings of librocksdb-sys and the version
//! that a process expects are equal.

use std::fs;

use crate::workspace::Workspace;

const LOCK: &str = "Cargo.lock";
const POM: &str = "infra/rocksdb/pom.xml";
const CHECKSUM: &str = "infra/rocksdb/rocksdbjni.sha256";
const ENGINE: &str = "libs/shard/src/engine.rs";

/// A file that names the version, and the text before and after the version in it.
const PINS: [(&str, &str, &str); 4] = [
    (LOCK, "name = \"librocksdb-sys\"\nversion = \"", "\""),
    (POM, "<artifactId>rocksdbjni</artifactId>\n      <version>", "<"),
    (CHECKSUM, "rocksdbjni-", ".jar"),
    (ENGINE, "pub const ROCKSDB_VERSION: &str = \"", "\""),
];

/// Returns a finding for each file that names another version than Cargo.lock.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let read = |file: &str| {
        fs::read_to_string(workspace.root.join(file)).map_err(|error| format!("{file}: {error}"))
    };
    let texts = PINS.iter().map(|(file, ..)| read(file)).collect::<Result<Vec<_>, _>>()?;
    Ok(differences(&texts))
}

fn differences(texts: &[String]) -> Vec<String> {
    let named = PINS.iter().zip(texts).map(|((file, before, after), text)| {
        let version = text.split_once(before).and_then(|(_, rest)| rest.split_once(after));
        // The version of the crate ends with a plus sign and the version of the library.
        (*file, version.map(|(version, _)| version.rsplit('+').next().unwrap_or(version)))
    });
    let named: Vec<(&str, Option<&str>)> = named.collect();
    let (_, locked) = named[0];
    let differs = named.iter().filter(|(_, version)| version.is_none() || *version != locked);
    let say = |version: Option<&str>| version.unwrap_or("none").to_owned();
    differs
        .map(|(file, version)| {
            format!(
                "{file} names RocksDB {}, but {LOCK} {}; fix: name that version, and the SHA-256 \
                 of its jar in {CHECKSUM}",
                say(*version),
                say(locked)
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lock: &str, pom: &str, checksum: &str, engine: &str) -> Vec<String> {
        let versions = [&format!("0.19.0+{lock}"), pom, checksum, engine];
        let all = PINS.iter().zip(versions);
        all.map(|((_, before, after), version)| format!("x{before}{version}{after}y")).collect()
    }

    #[test]
    fn equal_versions_have_no_problem() {
        assert_eq!(differences(&texts("1.2.3", "1.2.3", "1.2.3", "1.2.3")), Vec::<String>::new());
    }

    #[test]
    fn differing_version_is_named_with_its_file() {
        let found = differences(&texts("1.2.3", "1.2.4", "1.2.3", "1.2.3"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(POM) && found[0].contains("1.2.4"), "{found:?}");
    }

    #[test]
    fn file_without_a_version_is_a_problem() {
        let mut pinned_texts = texts("1.2.3", "1.2.3", "1.2.3", "1.2.3");
        pinned_texts[3] = "nothing".to_owned();
        assert_eq!(differences(&pinned_texts).len(), 1);
    }
}
