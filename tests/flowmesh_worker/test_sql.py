"""What `data.sql` answers, refuses and explains; the engine alone, without a host."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.catalog.sql_rules import varying_functions
from flowmesh_core.dataset import ColumnType, Manifest, Schema
from flowmesh_core.dataset.sql_binding import bound_columns
from flowmesh_core.errors import AttemptError
from flowmesh_store.datasets import rows_to_chunks, table_rows
from flowmesh_worker.engine_api import DatasetInput, HostSettings, Metrics, Rows, Work
from flowmesh_worker.engines.data.database import connect
from flowmesh_worker.engines.data.sql import Sql

ROWS = [{"a": 1, "b": 1.5, "j": {"x": [1]}}, {"a": 2, "b": None, "j": None}]


def dataset(rows: list[dict[str, Any]]) -> DatasetInput:
    manifest, blobs = rows_to_chunks(rows)
    return DatasetInput(manifest, tuple(blobs[c.blob] for c in manifest.chunks))


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Sql]:
    one = Sql()
    await one.load({}, HostSettings((), 512, 1, {}, tmp_path))
    yield one
    await one.close()


async def ask(engine: Sql, query: str, **tables: list[dict[str, Any]]) -> Any:
    inputs = {name: dataset(rows) for name, rows in (tables or {"rows": ROWS}).items()}
    work = Work("action", "attempt", {"query": query}, {}, inputs, Path("unused"))
    result = await engine.run(work, lambda *_: None)
    return result.outputs["rows"]


async def rows(engine: Sql, query: str, **tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = await ask(engine, query, **tables)
    manifest, blobs = rows_to_chunks(answer.rows, answer.schema)
    given = DatasetInput(manifest, tuple(blobs[c.blob] for c in manifest.chunks))
    assert len(given.rows()) == len(table_rows(answer.rows))
    return given.rows()


async def test_rows_are_returned_in_the_order_of_the_query(engine: Sql) -> None:
    assert await rows(engine, "select a from rows order by a desc") == [{"a": 2}, {"a": 1}]


async def test_tables_have_the_names_of_inputs(engine: Sql) -> None:
    query = 'select l.k, r.v from "left side" l join r using (k)'
    found = await rows(engine, query, **{"left side": [{"k": 1}], "r": [{"k": 1, "v": "x"}]})
    assert found == [{"k": 1, "v": "x"}]


async def test_json_columns_stay_json(engine: Sql) -> None:
    assert await rows(engine, "select j, j->>'$.x[0]' as x from rows limit 1") == [
        {"j": {"x": [1]}, "x": "1"}
    ]


async def test_every_type_of_duckdb_has_a_column_type(engine: Sql) -> None:
    query = """select 1::utinyint as int, sum(a) as big, 1.50::decimal(9,2) as dec,
        date '2020-01-02' as day, timestamp '2020-01-02 03:04:05' as moment, [1, 2] as ints,
        [1.5] as floats, ['x'] as strings, [[1]] as nested, {'k': 1} as struct, map {'a': 1} as map,
        null as nothing, 'x'::blob as bytes, 1.5::float as float, true as yes,
        uuid '00000000-0000-0000-0000-000000000001' as uuid, interval 1 day as day1,
        [date '2020-01-02'] as days, 'a'::enum('a', 'b') as enum from rows"""
    (found,) = await rows(engine, query)
    assert found == {
        "int": 1,
        "big": 3,
        "dec": 1.5,
        "day": "2020-01-02",
        "moment": "2020-01-02 03:04:05",
        "ints": [1, 2],
        "floats": [1.5],
        "strings": ["x"],
        "nested": [[1]],
        "struct": {"k": 1},
        "map": {"a": 1},
        "nothing": None,
        "bytes": b"x",
        "float": 1.5,
        "yes": True,
        "uuid": "00000000-0000-0000-0000-000000000001",
        "day1": "1 day",
        "days": ["2020-01-02"],
        "enum": "a",
    }


async def test_an_empty_result_has_columns(engine: Sql) -> None:
    answer = await ask(engine, "select a, b from rows where false")
    assert answer.schema.names == ["a", "b"]
    assert answer.rows.num_rows == 0


async def test_sums_of_floats_repeat(engine: Sql) -> None:
    many = [{"x": (i * 0.1) ** 3} for i in range(5000)]
    found = {str(await rows(engine, "select sum(x) as s from rows", rows=many)) for _ in range(3)}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select\n  nosuch\nfrom rows", ["nosuch", "rows(a, b, j)"]),
        ("select a\nfrom rowz", ["rowz", "line 2", "did you mean 'rows'", "rows(a, b, j)"]),
        ("selec 1", ["selec", "line 1"]),
        ("select a,\n  a from rows", ["'a' more than once"]),
        ("select a,\n cast('x' as int) as y from rows", ["'x'", "line 2"]),
        ("select random() as\n r", ["random()", "line 1"]),
        ("select 1e300::decimal(38,0) as d", ["DECIMAL(38,0)", "line 1"]),
    ],
)
async def test_an_error_names_the_line_and_the_available_columns(
    engine: Sql, query: str, words: list[str]
) -> None:
    with pytest.raises(AttemptError) as caught:
        await ask(engine, query)
    failure = caught.value.failure
    said = f"{failure.message} {failure.remedy} {failure.detail}"
    for word in words:
        assert word in said


async def test_a_column_may_have_the_name_of_a_function_that_varies(engine: Sql) -> None:
    found = await rows(engine, "select current_date from rows", rows=[{"current_date": "x"}])
    assert found == [{"current_date": "x"}]


async def test_a_time_with_a_zone_does_not_depend_on_the_zone_of_the_worker(engine: Sql) -> None:
    assert connect(0).sql("select current_setting('TimeZone')").fetchall() == [("UTC",)]
    query = "select date_trunc('day', to_timestamp(a) + interval 1 hour)::varchar as t from rows"
    assert await rows(engine, query, rows=[{"a": 0}]) == [{"t": "1970-01-01 00:00:00+00"}]


def test_a_function_varies_only_where_no_overload_is_consistent() -> None:
    """As DuckDB 2.0.1 declares them."""
    overloads = [
        ("+", "CONSISTENT"),
        ("+", "CONSISTENT_WITHIN_QUERY"),
        ("now", "CONSISTENT_WITHIN_QUERY"),
        ("current_schema", "CONSISTENT_WITHIN_QUERY"),
        ("current_schema", None),
        ("range", None),
        ("range", "CONSISTENT"),
        ("read_csv", None),
    ]
    assert varying_functions(overloads) == {"now", "current_schema"}
    assert varying_functions([("draw", "CONSISTENT"), ("draw", "VOLATILE")]) == {"draw"}


async def test_a_table_without_rows_and_columns_is_named(engine: Sql) -> None:
    with pytest.raises(AttemptError) as failed:
        await ask(engine, "select x from rows", rows=[])
    assert "input 'rows' has no rows and so no columns" in failed.value.remedy


async def test_a_query_can_be_stopped_and_the_next_one_runs(engine: Sql) -> None:
    endless = "select sum(a.range * b.range) as s from range(10000000) a, range(10000000) b"
    task = asyncio.ensure_future(ask(engine, endless))
    await asyncio.wait([task], timeout=0.3)
    task.cancel()
    async with asyncio.timeout(180):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await rows(engine, "select max(a) as m from rows")) == [{"m": 2}]


async def test_too_little_memory_is_reported_as_such(tmp_path: Path) -> None:
    small = Sql()
    await small.load({}, HostSettings((), 32, 1, {}, tmp_path))
    query = "select list(a.range order by a.range) as l from range(20000000) a"
    with pytest.raises(MemoryError):
        await ask(small, query)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("select [1, null, 2] as l", [{"l": [1, None, 2]}]),
        ("select ['a', null] as l", [{"l": ["a", None]}]),
        ("select [1.5::double, null] as l", [{"l": [1.5, None]}]),
        ("select list(b order by a) as l from rows", [{"l": [1.5, None]}]),
        (
            "select case when a = 1 then [a, null] end as l from rows",
            [{"l": [1, None]}, {"l": None}],
        ),
    ],
)
async def test_a_list_with_a_null_is_json(
    query: str, found: list[dict[str, Any]], engine: Sql
) -> None:
    assert await rows(engine, query) == found
    answer = await ask(engine, query)
    assert answer.schema.types() == {"l": ColumnType.JSON}


async def test_a_list_without_null_keeps_its_type(engine: Sql) -> None:
    answer = await ask(engine, "select case when a = 1 then [a] end as l from rows")
    assert answer.schema.types() == {"l": ColumnType.LIST_INT}


async def measured(engine: Sql, query: str) -> dict[str, Any]:
    work = Work(
        "action", "attempt", {"query": query, "metrics": True}, {}, {"rows": dataset(ROWS)}, Path()
    )
    metrics = (await engine.run(work, lambda *_: None)).outputs["metrics"]
    assert isinstance(metrics, Metrics)
    return dict(metrics.values)


async def test_the_one_row_of_a_result_is_its_metrics_too(engine: Sql) -> None:
    query = "select sum(a) as total, avg(b) as mean, max(a) > 1 as big, null as nothing from rows"
    assert await measured(engine, query) == {
        "total": 3,
        "mean": 1.5,
        "big": True,
        "nothing": None,
    }


@pytest.mark.parametrize("query", ["select a from rows", "select a from rows where false"])
async def test_metrics_of_none_or_several_rows_are_refused(engine: Sql, query: str) -> None:
    with pytest.raises(AttemptError, match=r"returns \d rows, and with metrics: true it must"):
        await measured(engine, query)


async def test_a_data_set_without_chunks_is_an_empty_table(engine: Sql) -> None:
    manifest = Manifest(Schema.of({"n": "int", "j": "json"}))
    work = Work(
        "action",
        "attempt",
        {"query": "select count(*) as c, sum(n) as s from t"},
        {},
        {"t": DatasetInput(manifest, ())},
        Path(),
    )
    found = (await engine.run(work, lambda *_: None)).outputs["rows"]
    assert isinstance(found, Rows)
    assert table_rows(found.rows) == [{"c": 0, "s": None}]


async def test_a_query_has_the_columns_that_it_was_bound_to_have(engine: Sql) -> None:
    """What admission says of a result is what the engine makes, for every type of a column."""
    rows = [
        {
            "i": 1,
            "f": 0.5,
            "s": "x",
            "b": True,
            "j": {"x": 1},
            "li": [1],
            "lf": [0.5],
            "ls": ["x"],
            "n": None,
        }
    ]
    tables = {"rows": dataset(rows).manifest.schema.types()}
    for query in (
        "select * from rows",
        "select i + 1 as a, i / 2 as b, f::decimal(4, 2) as c, s || 'y' as d, j->>'x' as e,"
        " li[1] as g, n as h, sum(i) over () as k, {'a': i} as l, today_of as m"
        " from (select *, date '2020-01-01' as today_of from rows)",
        "select count(*) as c, max(f) as m, list(s) as l, min(n) as n from rows",
    ):
        bound = bound_columns(query, tables)
        assert bound is not None
        made = (await ask(engine, query, rows=rows)).schema.types()
        assert {n: made[n] if k is not None else None for n, k in bound.items()} == bound, query
