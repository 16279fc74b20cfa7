//! Snapshots on a real Azure server, which `infra/objects` pins. It comes by npm, of which the
//! Bazel build knows nothing: this test runs by cargo alone.

mod servers;
mod tiny;

use forebay_testkit::object_servers::ObjectServerKind;

servers::object_server_tests!(ObjectServerKind::Azure, 5_000);
