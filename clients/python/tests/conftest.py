"""Installs the built native module into the package, and provides a real server for the tests."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import install_native
import pytest

# Bazel runs tests with this variable, and has installed the module itself.
if "TEST_SRCDIR" not in os.environ:
    install_native.install()

import forebay  # The native module exists only from here on.
from testing import Server, Stores, forget_copies

# Only the tools' Python has the driver.
HAS_DRIVER = importlib.util.find_spec("adbc_driver_flightsql") is not None
collect_ignore = [] if HAS_DRIVER else ["test_flight_sql.py"]


@pytest.fixture(autouse=True)
def leave_no_copies(tmp_path: Path) -> Iterator[None]:
    """Remove the shared copies of a test, so that the next reader finds none."""
    yield
    forget_copies(tmp_path)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Provide one forebayd for all tests that do not kill or freeze it."""
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """Provide a forebayd that the test may kill or freeze."""
    server = Server(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def snapshot_server(tmp_path: Path) -> Iterator[Server]:
    """Provide the test's own forebayd with snapshots, a new one each second."""
    server = Server(tmp_path, keeps_snapshots=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[forebay.Client]:
    """Provide a client of the shared server."""
    with forebay.Client(server.endpoint) as client:
        yield client


@pytest.fixture
def stores(client: forebay.Client) -> Iterator[Stores]:
    """Provide stores on the shared server."""
    stores = Stores(client)
    yield stores
    stores.close()
