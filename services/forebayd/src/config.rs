//! Configuration: defaults, then one TOML file, then the environment and flags. Unknown keys are
//! errors that name the key.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// What an acknowledgement of the embedded log survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power cut: every group is synced before it is acknowledged.
    #[default]
    Fsync,
    /// The death of the process: the operating system writes when it likes.
    Buffered,
}

/// The settings of `forebayd dev`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DevConfig {
    /// Address to listen on; loopback only.
    pub listen: SocketAddr,
    /// Where the embedded log lies.
    pub data_dir: PathBuf,
    /// What an acknowledgement survives.
    pub durability: Durability,
}

impl Default for DevConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            data_dir: PathBuf::from("forebay-data"),
            durability: Durability::default(),
        }
    }
}

impl DevConfig {
    /// Reads a TOML file over the defaults.
    ///
    /// # Errors
    /// `InvalidArgument`, with the file, the line and the key.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::invalid_argument(format!("read {}: {error}", path.display()))
        })?;
        toml::from_str(&text)
            .map_err(|error| Error::invalid_argument(format!("{}: {error}", path.display())))
    }

    /// Refuses settings that are not safe to run with.
    ///
    /// # Errors
    /// `InvalidArgument`, saying what to set.
    pub fn check(&self) -> Result<()> {
        if self.listen.ip().is_loopback() {
            return Ok(());
        }
        let message = format!(
            "`forebayd dev` has no TLS and no authentication, so it listens on loopback only, not \
             on {}; set listen to 127.0.0.1:{}",
            self.listen.ip(),
            self.listen.port()
        );
        Err(Error::invalid_argument(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_are_errors_that_name_the_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "listen = \"127.0.0.1:1\"\ndata_dri = \"x\"\n").unwrap();
        let error = DevConfig::from_file(file.path()).unwrap_err().to_string();
        assert!(error.contains("data_dri") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn a_file_overrides_only_what_it_names() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "durability = \"buffered\"\n").unwrap();
        let config = DevConfig::from_file(file.path()).unwrap();
        let expected = DevConfig { durability: Durability::Buffered, ..DevConfig::default() };
        assert_eq!(config, expected);
    }

    #[test]
    fn beyond_loopback_is_refused() {
        let listen = SocketAddr::from(([0, 0, 0, 0], 7070));
        let error = DevConfig { listen, ..DevConfig::default() }.check().unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:7070"));
    }
}
