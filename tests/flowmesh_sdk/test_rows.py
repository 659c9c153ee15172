"""Rows of an output as tables: the data set's own types, read chunk by chunk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import duckdb
import pyarrow as pa
import pytest
from tests.attacks.by_hand import Place, place
from tests.blob_views import blobs_of
from tests.flowmesh_control.fabric import API_TOKEN

import flowmesh_sdk as fm
from flowmesh_control.queries import downloads
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.dataset import Manifest, Schema, concat, encode_manifest
from flowmesh_core.machine.step_results import dataset_artifact
from flowmesh_core.protocol.messages import AttemptEnd
from flowmesh_core.protocol.results import Usage
from flowmesh_sdk import tables
from flowmesh_store.datasets import as_single_chunk, rows_to_chunks

T = TypeVar("T")
BIG = 2**53 + 1
ROWS: list[dict[str, Any]] = [
    {"any": {"a": 1}, "data": b"\x00\xff", "n": BIG, "t": "x", "v": [0.5, 1.0], "w": None},
    {"any": [1, "two"], "data": None, "n": None, "t": "y", "v": [], "w": None},
    {"any": {"b": {"c": None}}, "data": b"", "n": 3, "t": None, "v": None, "w": None},
    {"any": "text", "data": b"z", "n": -4, "t": "", "v": [2.0], "w": None},
    {"any": None, "data": b"z", "n": 5, "t": "", "v": [2.0], "w": None},
]
SCHEMA = Schema.of(
    {"any": "json", "data": "bytes", "n": "int", "t": "string", "v": "list<float>", "w": "null"}
)


@asynccontextmanager
async def output(
    manifest: Manifest, blobs: dict[Any, bytes], *, kept: int | None = None
) -> AsyncIterator[tuple[Place, str]]:
    """Yields a fabric in which a run has a data set as its output, and the run.

    Args:
        manifest: of the data set.
        blobs: its chunks.
        kept: how many of these the store still has after the run; all by default.
    """
    contract = load_catalog().newest("data.sql")
    assert contract is not None
    step = {"name": "one", "uses": "data.sql", "with": {"query": "select 1 as n"}}
    async with place() as there:
        worker = await there.join("w", shape={"engines": {"data.sql": contract.versions}})
        uid = await there.submit("flow", {"steps": [step], "outputs": {"rows": "one.rows"}})
        (given,) = await worker.given()
        scope = given.attempt_id.split("/")[0]
        own = blobs_of(there.store, scope)
        made = dataset_artifact(manifest)
        await own.put(made.blob, encode_manifest(manifest))
        for digest, data in blobs.items():
            await own.put(digest, data)
        usage = Usage(units=1, run_s=0.01)
        end = AttemptEnd(
            given.attempt_id, given.action_id, {"rows": made}, usage=usage, token=given.token
        )
        await worker.sync(ended=(end,))
        assert (await there.ended(uid)).phase == "Succeeded"
        for digest in [*blobs][kept:] if kept is not None else ():
            await there.store.sweepable_blobs.delete(scope, digest, older_than_s=-1.0)
        yield there, uid


async def read(there: Place, uid: str, ask: Callable[[fm.Rows], T]) -> T:
    """Asks for the rows in a thread."""

    def asked() -> T:
        with fm.connect(there.control.url, token=API_TOKEN) as client:
            rows = client.get_run(uid).result()["rows"]
            assert isinstance(rows, fm.Rows)
            return ask(rows)

    return await asyncio.to_thread(asked)


async def ask_all(manifest: Manifest, blobs: dict[Any, bytes], ask: Callable[[fm.Rows], T]) -> T:
    async with output(manifest, blobs) as (there, uid):
        return await read(there, uid, ask)


async def test_a_table_has_the_types_and_values_of_the_data_set() -> None:
    table = await ask_all(*rows_to_chunks(ROWS, SCHEMA), fm.Rows.to_arrow)
    assert {field.name: str(field.type) for field in table.schema} == {
        "any": "extension<arrow.json>",
        "data": "binary",
        "n": "int64",
        "t": "string",
        "v": "list<item: double>",
        "w": "null",
    }
    assert tables.table_rows(table) == ROWS
    assert rows_to_chunks(table)[0] == rows_to_chunks(ROWS, SCHEMA)[0], "it is the same data set"


async def test_an_output_without_rows_has_its_columns() -> None:
    def ask(rows: fm.Rows) -> None:
        assert rows.to_list() == rows.head() == []
        assert rows.to_arrow().column_names == SCHEMA.names
        assert list(rows.to_pandas().columns) == SCHEMA.names
        assert rows.sql("select count(*) as c, max(n) as m from rows").to_pylist() == [
            {"c": 0, "m": None}
        ]

    await ask_all(Manifest(SCHEMA), {}, ask)


async def test_the_first_rows_are_as_many_as_there_are_of_a_whole_number() -> None:
    def ask(rows: fm.Rows) -> None:
        assert rows.head(10**20) == rows.to_list()
        for wrong in (-1, 2.5, "3", None):
            with pytest.raises(fm.InvalidArgumentError, match="is not a number of rows"):
                rows.head(cast("int", wrong))

    await ask_all(*rows_to_chunks(ROWS, SCHEMA), ask)


async def test_an_output_without_columns_is_a_clear_error_of_sql() -> None:
    def ask(rows: fm.Rows) -> None:
        assert rows.to_arrow().num_columns == 0
        with pytest.raises(fm.FlowMeshError, match='table "rows": it has no columns'):
            rows.sql("select * from rows")

    await ask_all(Manifest(Schema()), {}, ask)


async def test_json_of_any_shape_is_queried_and_framed_as_it_is() -> None:
    def ask(rows: fm.Rows) -> None:
        found = rows.sql("select \"any\"->>'a' as a, \"any\" from rows where t = 'x'")
        assert tables.table_rows(found) == [{"a": "1", "any": {"a": 1}}]
        frame = rows.to_pandas()
        assert [*frame["any"]] == [row["any"] for row in ROWS]
        assert [*frame["data"]] == [row["data"] for row in ROWS]
        assert str(frame["n"].dtype) == "Int64"
        assert frame["n"][0] == BIG, "no digit is lost where another value is null"

    await ask_all(*rows_to_chunks(ROWS, SCHEMA), ask)


async def test_a_data_set_of_hugging_face_has_the_rows() -> None:
    datasets = pytest.importorskip("datasets")

    def ask(rows: fm.Rows) -> None:
        made = rows.to_hf()
        assert isinstance(made.features["any"], datasets.Json)
        assert made.to_list() == ROWS

    await ask_all(*rows_to_chunks(ROWS, SCHEMA), ask)


def many(count: int) -> tuple[Manifest, dict[Any, bytes]]:
    """Returns a data set of so many chunks of two rows each."""
    parts = [as_single_chunk([{"n": 2 * i}, {"n": 2 * i + 1}]) for i in range(count)]
    return concat([m for m, _ in parts]), {d: b for _, blobs in parts for d, b in blobs.items()}


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_the_first_rows_need_only_their_chunks(count: int) -> None:
    """The store has two chunks of four, so that reading a third one would fail."""
    async with output(*many(4), kept=2) as (there, uid):
        found = await read(there, uid, lambda rows: rows.head(count))
        assert found == [{"n": n} for n in range(count)]
        path = f"/v1/runs/{uid}/outputs/rows?head={count}"
        assert len((await there.get(path)).splitlines()) == count
        with pytest.raises(fm.FlowMeshError, match="incomplete"):
            await read(there, uid, fm.Rows.to_list)


async def test_a_chunk_is_fetched_once_for_the_first_rows() -> None:
    manifest, blobs = many(4)
    asked: list[Any] = []

    class Counting:
        async def get(self, digest: Any) -> bytes:
            asked.append(digest)
            return blobs[digest]

    counting: Any = Counting()
    for as_arrow in (False, True):
        asked.clear()
        pieces = downloads.download_of(
            counting, (dataset_artifact(manifest),), rows_max=3, as_arrow=as_arrow
        ).pieces
        content = b"".join([piece async for piece in pieces])
        assert asked == [chunk.blob for chunk in manifest.chunks[:2]]
    assert pa.ipc.open_stream(content).read_all().to_pylist() == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_batches_come_one_a_chunk_and_a_missing_chunk_is_an_error() -> None:
    async with output(*many(3), kept=2) as (there, uid):

        def ask(rows: fm.Rows) -> None:
            with rows.arrow_reader() as reader:
                assert [reader.read_next_batch().num_rows for _ in range(2)] == [2, 2]
                with pytest.raises(fm.FlowMeshError, match="incomplete"):
                    reader.read_next_batch()

        await read(there, uid, ask)


async def test_data_sets_of_one_output_have_one_schema() -> None:
    """A column without a value in one part has the type of the others."""
    parts = [as_single_chunk([{"n": None}]), as_single_chunk([{"n": 1}])]
    blobs = {digest: data for _, found in parts for digest, data in found.items()}

    class Given:
        async def get(self, digest: Any) -> bytes:
            return blobs[digest]

    given: Any = Given()
    artifacts = [dataset_artifact(manifest) for manifest, _ in parts]
    pieces = downloads.download_of(given, artifacts, as_arrow=True).pieces
    table = pa.ipc.open_stream(b"".join([piece async for piece in pieces])).read_all()
    assert table.schema.field("n").type == pa.int64()
    assert table.to_pylist() == [{"n": None}, {"n": 1}]


@pytest.mark.parametrize("head", ["0", "-1", "x", "1" * 40])
async def test_a_number_of_rows_that_is_none_is_refused(head: str) -> None:
    async with output(*many(1)) as (there, uid):
        url = f"{there.control.url}/v1/runs/{uid}/outputs/rows?head={head}"
        async with there.http.get(url, headers={"Authorization": "Bearer api-token"}) as answer:
            assert answer.status == 400
            assert "is not a number of rows" in await answer.text()


async def test_no_rows_are_asked_for_nothing_and_fewer_are_refused() -> None:
    def ask(rows: fm.Rows) -> None:
        assert rows.head(0) == []
        with pytest.raises(fm.InvalidArgumentError, match="-1 is not a number of rows"):
            rows.head(-1)

    await ask_all(*many(1), ask)


async def test_a_fabric_that_does_not_speak_arrow_is_a_clear_error() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{}\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = fm.connect(f"http://127.0.0.1:{port}", token="t")
        rows = fm.Rows(client._http, "/v1/runs/r/outputs/rows", count=2)
        with pytest.raises(fm.FlowMeshError, match="it is application/x-ndjson"):
            await asyncio.to_thread(rows.to_arrow)


def pieces_of(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_pieces_of_any_size_are_one_stream(size: int) -> None:
    table = pa.table({"a": list(range(100))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    stream = tables.open_stream(pieces_of(sink.getvalue().to_pybytes(), size))
    assert stream.read_all() == table


def test_a_parquet_file_with_a_column_of_json_has_its_values(tmp_path: Any) -> None:
    """DuckDB and Arrow write such files, also of the tables here."""
    from flowmesh_store.datasets import read_rows_file

    file = tmp_path / "rows.parquet"
    duckdb.sql("select '{\"a\": [1, null]}'::json as j").write_parquet(str(file))
    table = read_rows_file("rows.parquet", file.read_bytes())
    assert rows_to_chunks(table)[0] == rows_to_chunks([{"j": {"a": [1, None]}}])[0]


async def test_an_output_of_which_nothing_is_published_yet_is_an_empty_table() -> None:
    blobs: Any = None  # of which nothing is read
    pieces = downloads.download_of(blobs, (), as_arrow=True).pieces
    table = pa.ipc.open_stream(b"".join([piece async for piece in pieces])).read_all()
    assert (table.num_rows, table.num_columns) == (0, 0)
