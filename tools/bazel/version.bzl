"""The version that programs print, as in the workspace's Cargo.toml."""

VERSION = "0.1.0"
