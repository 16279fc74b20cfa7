"""Puts the built native module into the package, and gives the tests a real server."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import install_native
import pytest

# Bazel, which runs tests with this variable, has put the module there itself.
if "TEST_SRCDIR" not in os.environ:
    install_native.install()

import forebay  # Only now is its native module there.
from testing import Server, Stores, forget_copies

# Only the Python of the tools has the driver.
HAS_DRIVER = importlib.util.find_spec("adbc_driver_flightsql") is not None
collect_ignore = [] if HAS_DRIVER else ["test_flight_sql.py"]


@pytest.fixture(autouse=True)
def leave_no_copies(tmp_path: Path) -> Iterator[None]:
    """Shared copies are there for the next reader; a test has none."""
    yield
    forget_copies(tmp_path)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One forebayd for all tests that leave it alone."""
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A forebayd that the test may kill or freeze."""
    server = Server(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def snapshot_server(tmp_path: Path) -> Iterator[Server]:
    """A forebayd of the test's own that keeps snapshots, a new one each second."""
    server = Server(tmp_path, keeps_snapshots=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[forebay.Client]:
    """A client of the shared server."""
    with forebay.Client(server.endpoint) as client:
        yield client


@pytest.fixture
def stores(client: forebay.Client) -> Iterator[Stores]:
    """Stores on the shared server."""
    stores = Stores(client)
    yield stores
    stores.close()
