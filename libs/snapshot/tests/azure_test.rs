//! Snapshots on a real Azure server, which `infra/objects` pins. The server is an npm package,
//! which the Bazel build does not support: only Cargo runs this test. `infra/objects` sets the size
//! of its list pages.

mod servers;
mod tiny;

use forebay_testkit::object_servers::ObjectServerKind;

servers::object_server_tests!(ObjectServerKind::Azure, 100, 256);
