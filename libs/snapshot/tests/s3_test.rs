//! Snapshots on a real S3 server, which `infra/objects` pins.

mod servers;
mod tiny;

use forebay_testkit::object_servers::ObjectServerKind;

servers::object_server_tests!(ObjectServerKind::S3, 1_000, 1_000);
