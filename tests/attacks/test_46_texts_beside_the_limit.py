"""Attacker: T1, a tenant who may submit workflows; T5, a question that a model turns into SQL.
Action: queries whose functions make gigabytes that the database's memory limit does not count.
Must not happen: the process grows by more than its query may use, or ends.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
MEMORY_MIB = 128
GROWTH_MIB_MAX = 2 * MEMORY_MIB + 256
LARGE = {
    "repeat": "select repeat('a', 2000000000) as x",
    "only its length": "select length(repeat('a', 2000000000)) as x",
    "of a blob": "select repeat('a'::blob, 2000000000) as x",
    "of a list": "select len(repeat([1], 1000000000)) as x",
    "format": "select length(format('{:>2000000000}', 'a')) as x",
    "printf": "select length(printf('%2000000000s', 'a')) as x",
    "range": "select len(range(300000000)) as x",
    "generate_series": "select len(generate_series(1, 300000000)) as x",
    "list_resize": "select len(list_resize([1], 300000000, 7)) as x",
    "replace": "select length(replace(repeat('a', 50000), 'a', repeat('b', 50000))) as x",
    "concat": "with t as (select repeat('a', 200000000) as s)"
        " select length(concat(s, s, s, s, s, s, s, s, s, s, s)) as x from t",
    "many rows": "select repeat('a', 20000000) as x from range(200)",
}  # fmt: skip
PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from tests.flowmesh_worker.test_sql import dataset
from flowmesh_core.errors import AttemptError
from flowmesh_worker.engine_api import HostSettings, Work
from flowmesh_worker.engines.data.sql import Sql

def peak_mib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(l for l in lines if l.startswith("VmHWM")).split()[1]) >> 10

async def ask(engine, query):
    work = Work("a", "b", {"query": query}, {}, {"t": dataset([{"n": 2}])}, Path("unused"))
    return (await engine.run(work, lambda *_: None)).outputs["rows"].rows.to_pylist()

async def main():
    engine = Sql()
    await engine.load({}, HostSettings((), int(sys.argv[1]), 1, {}, Path("unused")))
    honest = "select n + 1 as m, length(repeat('a', 1000000)) as l from t"
    assert await ask(engine, honest) == [{"m": 3, "l": 1000000}]
    for name, query in json.load(sys.stdin).items():
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = peak_mib()
        try:
            outcome = f"answered {str(await ask(engine, query))[:80]}"
        except (MemoryError, AttemptError) as error:
            outcome = type(error).__name__
        grown = peak_mib() - before
        assert await ask(engine, honest) == [{"m": 3, "l": 1000000}]
        print(json.dumps([name, outcome, grown]), flush=True)
    await engine.close()

asyncio.run(main())
"""


def test_no_query_grows_its_process_beyond_what_it_may_use() -> None:
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), *(p for p in sys.path if p)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(MEMORY_MIB)],
        input=json.dumps(LARGE),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    found = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, (done.returncode, found, done.stderr[-2000:])
    assert found.keys() == LARGE.keys()
    for name, (outcome, grown_mib) in found.items():
        assert grown_mib <= GROWTH_MIB_MAX, (name, outcome, grown_mib)
        assert outcome == "MemoryError", (name, outcome)
