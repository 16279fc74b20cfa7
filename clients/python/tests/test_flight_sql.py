"""SQL over streams as people use it from Python: by ADBC's driver, over Arrow Flight SQL."""

import time
from collections.abc import Iterator
from typing import Any

import forebay
import pytest
from adbc_driver_flightsql import dbapi
from testing import WAIT_SECONDS, Server, new_name

ORDERS: list[tuple[str, dict[str, Any]]] = [
    ("ada", {"city": "Rome", "price": 3, "tags": ["a", "b"]}),
    ("bob", {"city": "Oslo", "price": 4}),
    ("ada", {"city": "Rome", "price": 5}),
    ("eve", {"price": 6}),
]


@pytest.fixture(scope="module")
def stream(client: forebay.Client) -> str:
    """Return the name of a stream with the orders."""
    columns = {"city": "string", "price": "int32", "tags": "list<string>"}
    store = client.create_stream(new_name("orders"), columns, partitions=3)
    for key, order in ORDERS:
        store.insert(key, order)
    return store.definition.name


@pytest.fixture(scope="module")
def connection(server: Server, stream: str) -> Iterator[dbapi.Connection]:
    """Return a connection that sees all orders."""
    with dbapi.connect(f"grpc://{server.endpoint}") as connection:
        deadline = time.monotonic() + WAIT_SECONDS
        while _answer(connection, f"SELECT count(*) FROM {stream}") != [(len(ORDERS),)]:
            assert time.monotonic() < deadline, "the events do not come"
            time.sleep(0.02)
        yield connection


def _answer(connection: dbapi.Connection, sql: str) -> list[tuple[object, ...]]:
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())
    except dbapi.Error as error:
        # The stream may not be open yet.
        assert any(word in str(error) for word in ("not found", "ask again")), error
        return []


def test_statements_are_answered(connection: dbapi.Connection, stream: str) -> None:
    by_city = f"SELECT city, sum(price) FROM {stream} GROUP BY city ORDER BY city NULLS LAST"
    assert _answer(connection, by_city) == [("Oslo", 4), ("Rome", 8), (None, 6)]
    of_ada = f"SELECT price FROM {stream} WHERE _key = 'ada' ORDER BY price"
    assert _answer(connection, of_ada) == [(3,), (5,)]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT tags, _time, _key FROM {stream} WHERE price = 3")
        table = cursor.fetch_arrow_table()
    assert table.column("tags").to_pylist() == [["a", "b"]]
    assert str(table.schema.field("_time").type) == "timestamp[us, tz=UTC]"


def test_driver_lists_server_catalog_and_schema(connection: dbapi.Connection, stream: str) -> None:
    assert connection.adbc_get_info()["vendor_name"] == "Forebay"
    found = connection.adbc_get_objects(depth="all", table_name_filter=stream).read_all()
    (catalog,) = found.to_pylist()
    (events,) = [it for it in catalog["catalog_db_schemas"] if it["db_schema_name"] == "events"]
    (table,) = events["db_schema_tables"]
    names = [column["column_name"] for column in table["table_columns"]]
    assert (table["table_name"], names[:4]) == (stream, ["city", "price", "tags", "_key"])
    schema = connection.adbc_get_table_schema(stream)
    assert str(schema.field("price").type) == "int32"


def test_wrong_statements_raise_errors_with_their_cause(
    connection: dbapi.Connection, stream: str
) -> None:
    for sql, word in [
        (f"SELECT nothing FROM {stream}", "nothing"),
        ("SELEKT 1", "SELEKT"),
        (f"DROP TABLE {stream}", "DDL"),
        ("SELECT 1" + " + 1" * 5000, "too many words"),
    ]:
        with connection.cursor() as cursor, pytest.raises(dbapi.Error, match=word):
            cursor.execute(sql)
    with connection.cursor() as cursor, pytest.raises(dbapi.Error, match="no parameters"):
        cursor.execute(f"SELECT * FROM {stream} WHERE price = ?", (3,))
