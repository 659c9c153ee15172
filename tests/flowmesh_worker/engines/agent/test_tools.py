"""Tools on real data: their results, and their error texts for wrong calls."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import DatasetInput, Work
from flowmesh_worker.engines.agent.calls import ToolCall
from flowmesh_worker.engines.agent.tool_factory import ToolFactory
from flowmesh_worker.engines.agent.tools.calculator import CalculatorTool, evaluate
from flowmesh_worker.engines.agent.tools.retrieve import RowIndex
from flowmesh_worker.engines.agent.tools.tool import CallSite, ToolError, schema_of
from flowmesh_worker.engines.agent.tools.toolbox import Toolbox
from flowmesh_worker.engines.egress.addresses import REQUEST_ALLOW_VARIABLE

sys.path.insert(0, str(Path(__file__).parents[1] / "http"))
from http_server import serving

BOOKS = [
    {"title": "Tides of Iron", "about": "a blacksmith by the sea", "year": 1931},
    {"title": "The Salt Road", "about": "traders cross a desert", "year": 1950},
    {"title": "Harbour Lights", "about": "a lighthouse by the sea", "year": 1978},
]


def dataset(rows: list[dict[str, Any]]) -> DatasetInput:
    manifest, blobs = as_single_chunk(rows)
    return DatasetInput(manifest, tuple(blobs[c.blob] for c in manifest.chunks))


async def box(workshop: ToolFactory, *tools: str, **params: Any) -> Toolbox:
    given = {"tools": tools, "maxResultChars": 400, "toolTimeoutS": 20.0, "httpHosts": [], **params}
    inputs = {"books": dataset(BOOKS), "rows": dataset([{"q": "x"}])}
    return await workshop.toolbox(Work("action", "attempt", given, {}, inputs, Path("unused")))


async def use(toolbox: Toolbox, name: str, **arguments: Any) -> str:
    [result] = await toolbox.run([ToolCall(name, arguments)], CallSite("action", "0/0"))
    return result


@pytest.fixture
def workshop(tmp_path: Path) -> ToolFactory:
    return ToolFactory(tmp_path)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3.5"),
        ("6 / 2", "3"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 3", "0.333333333333"),
        ("2 ** 10", "1024"),
        ("2 ^ 10", "1024"),
        ("-7 // 2", "-4"),
        ("17 % 5", "2"),
        ("sqrt(16) + abs(-2) + max(1, 5)", "11"),
        ("round(2.567, 1)", "2.6"),
        ("2 * pi", "6.28318530718"),
        ("1e30", "1e+30"),
        ("12345678901234567890 + 1", "12345678901234567891"),
        ("2 ** 0.5", "1.41421356237"),
    ],
)
def test_the_calculator_does_arithmetic(expression: str, value: str) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("1 / 0", "division by zero"),
        ("1 +", "no arithmetic"),
        ("", "no arithmetic"),
        ("1\x00", "no arithmetic"),
        ("\x14", "no arithmetic"),
        ("9 ** 9 ** 9", "too large"),
        ("(2 ** 4000) * (2 ** 4000)", "too large"),
        ("1e308 * 10", "not finite"),
        ("(-1) ** 0.5", "no real number"),
        ("sqrt(-1)", "math domain"),
        ("'a' * 3", "not allowed"),
        ("True + 1", "numbers only"),
        ("__import__('os')", "not allowed"),
        ("().__class__", "not allowed"),
        ("[1 for _ in range(9)]", "not allowed"),
        ("round(1, ndigits=2)", "not allowed"),
        ("x + 1", "not allowed"),
        ("1j", "not allowed"),
        ("+".join("1" * 240), "too long"),
        ("(" * 400, "no arithmetic"),
        ("10.0 ** 400", "too large"),
    ],
)
def test_the_calculator_does_nothing_else(expression: str, words: str) -> None:
    with pytest.raises(ToolError, match=re.escape(words)):
        evaluate(expression)


async def test_sql_queries_only_the_data_sets(workshop: ToolFactory) -> None:
    tools = await box(workshop, "sql")
    assert "books(about, title, year)" in tools.descriptions()[0]["function"]["description"]
    found = await use(tools, "sql", query="select title, year from books where year > 1940")
    assert [json.loads(line)["year"] for line in found.splitlines()] == [1950, 1978]
    assert await use(tools, "sql", query="select 1 where false") == "(no rows)"
    for query, words in (
        ("select random()", "random() is refused"),
        ("select * from '/etc/passwd'", "no table"),
        ("drop table books", "not a SELECT"),
        ("select titel from books", 'Referenced column "titel" not found'),
        ("select * from rows", "no table 'rows'"),
        ("\ufffd\x14", "error: "),
        ("", "error: "),
    ):
        assert words in await use(tools, "sql", query=query)
    assert "(the first 100 of 200 rows)" in await use(
        await box(workshop, "sql", maxResultChars=9000), "sql", query="select * from range(200)"
    )


async def test_a_query_without_end_is_ended_and_the_next_one_answered(
    workshop: ToolFactory,
) -> None:
    tools = await box(workshop, "sql", toolTimeoutS=0.2)
    endless = "select count(*) from range(1000000000) a, range(1000000) b where a.range <> b.range"
    assert "longer than 0.2 s" in await use(tools, "sql", query=endless)
    assert await use(tools, "sql", query="select 1 as one") == '{"one": 1}'


async def test_retrieve_finds_rows_by_their_words(workshop: ToolFactory) -> None:
    tools = await box(workshop, "retrieve", maxResultChars=4000)
    found = await use(tools, "retrieve", input="books", query="Lighthouse by sea?")
    rows = [json.loads(line) for line in found.splitlines()]
    assert [r["title"] for r in rows] == ["Harbour Lights", "Tides of Iron"]
    assert rows[0]["row"] == 2
    assert rows[0]["score"] > rows[1]["score"] > 0
    one = await use(tools, "retrieve", input="books", query="sea", k=1)
    assert json.loads(one)["title"] == "Harbour Lights"
    assert "no row has a word" in await use(tools, "retrieve", input="books", query="zebra ?")
    assert "none of books" in await use(tools, "retrieve", input="rows", query="x")
    assert "from 1 to 20" in await use(tools, "retrieve", input="books", query="x", k=99)


def test_rows_of_equal_scores_keep_their_order_and_rows_without_words_are_omitted() -> None:
    texts = [None, "b c", "a b", "?", "b a", "x y", "y z", "z q"]
    index = RowIndex(dataset([{"n": i, "text": t} for i, t in enumerate(texts)]))
    assert [r["n"] for r in index.search("B, aa", 2)] == [1, 2]
    assert [r["n"] for r in index.search("b", 9)] == [1, 2, 4]
    assert RowIndex(dataset([{"text": None}, {"text": "!"}])).search("bee", 9) == []


async def test_tables_and_indexes_are_made_once(workshop: ToolFactory) -> None:
    first, second = [await box(workshop, "sql", "retrieve") for _ in range(2)]
    assert first._tools["sql"]._database is second._tools["sql"]._database  # type: ignore[attr-defined]
    one, other = (t._tools["retrieve"]._indexes["books"] for t in (first, second))  # type: ignore[attr-defined]
    assert one is other


async def test_scripts_run_in_the_sandbox(workshop: ToolFactory) -> None:
    tools = await box(workshop, "python")
    code = "import math\nprint('hi')\nmath.factorial(5)"
    assert await use(tools, "python", code=code) == "hi\n120\n"
    assert "ZeroDivisionError" in await use(tools, "python", code="1/0")
    assert "SyntaxError" in await use(tools, "python", code="1 +")
    assert "null bytes" in await use(tools, "python", code="\x00")
    assert await use(tools, "python", code="x = 1") == "(it printed nothing)"
    if os.geteuid() == 0:
        denied = await use(tools, "python", code="open('/etc/passwd').read()")
        assert "FileNotFoundError" in denied
    network = "import socket\nsocket.create_connection(('127.0.0.1', 1), 1)"
    assert "Error" in await use(tools, "python", code=network)
    slow = await box(workshop, "python", toolTimeoutS=0.5)
    assert "longer than its 0.5 s" in await use(slow, "python", code="while True: pass")


async def test_http_requests_only_listed_hosts(
    workshop: ToolFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REQUEST_ALLOW_VARIABLE, "127.0.0.1/32")
    paths: Mapping[str, Any] = {
        "/page": lambda _: web.Response(text="hello"),
        "/away": lambda s: web.Response(status=302, headers={"Location": s.query["to"]}),
    }
    async with serving(dict(paths)) as site:
        tools = await box(workshop, "http", httpHosts=["127.0.0.1", "10.0.0.1"])
        try:
            assert await use(tools, "http", url=site.url + "/page") == "HTTP status 200\nhello"
            assert len(site.seen[0].headers["Idempotency-Key"]) == 32
            port = site.url.rpartition(":")[2]
            for url in (f"http://localhost:{port}/page", f"{site.url}/away?to=https://other.test/"):
                assert "not on an allowed host" in await use(tools, "http", url=url)
            private = await use(tools, "http", url="https://10.0.0.1/")
            assert "not a public address" in private
            assert [s.method for s in site.seen] == ["GET", "GET"]
        finally:
            await workshop.close()


async def test_missing_requirements_of_a_tool_are_reported_before_anything_runs(
    workshop: ToolFactory,
) -> None:
    with pytest.raises(AttemptError, match="has no allowed host"):
        await box(workshop, "http")
    work = Work("a", "b", {"tools": ["sql"], "toolTimeoutS": 1.0, "maxResultChars": 9}, {}, {},
                Path("unused"))  # fmt: skip
    with pytest.raises(AttemptError, match="no data sets to work on"):
        await workshop.toolbox(work)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("calculater", {}, "did you mean 'calculator'?"),
        ("calculator", {}, "'expression' is missing"),
        ("calculator", {"expression": 3}, "is no string"),
        ("calculator", {"expression": "1", "x": 1}, "no argument 'x'; there are expression"),
        ("calculator", {"expression": "1" * 121}, "expression is longer than 120 characters"),
    ],
)
async def test_invalid_calls_are_reported(name: str, arguments: dict[str, Any], words: str) -> None:
    result = await use(Toolbox([CalculatorTool()], 400), name, **arguments)
    assert result.startswith("error: ")
    assert words in result


async def test_long_results_are_truncated_with_a_notice() -> None:
    result = await use(Toolbox([CalculatorTool()], 20), "calculator", expression="9 ** 1000")
    assert result.endswith("\n[cut; it has 955 characters]")
    assert len(result.splitlines()[0]) == 20


class Failing:
    """A tool that raises a given error."""

    name = "failing"
    description = ""
    parameters = schema_of({})

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def call(self, arguments: Mapping[str, Any], place: CallSite) -> str:
        await asyncio.sleep(0)
        raise self._error


async def test_a_fault_of_the_worker_fails_the_attempt_and_a_fault_of_the_call_does_not() -> None:
    killed = AttemptError(Failure(FailureKind.ENGINE, "the process was killed"))
    with pytest.raises(AttemptError):
        await use(Toolbox([Failing(killed)], 400), "failing")
    late = AttemptError(Failure(FailureKind.TIMEOUT, "it took too long"))
    assert await use(Toolbox([Failing(late)], 400), "failing") == "error: it took too long"
