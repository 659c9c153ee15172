"""Workflows compiled in a child process: equal plans and errors, and its limits."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from ruamel.yaml import YAML
from tests.attacks.one_fabric import fabric_at
from tests.flowmesh_control.fabric import workflow
from tests.flowmesh_control.waiting import until

from flowmesh_control.evaluators import compilers
from flowmesh_control.evaluators import process as process_module
from flowmesh_control.evaluators.compilation import CompileRequest, CompilerSetup
from flowmesh_control.evaluators.compilers import InlineCompiler, SandboxedCompiler
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import ContentLimitError, FlowMeshError, SpecError
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.plan import Plan
from flowmesh_core.protocol.messages import WorkerShape

EXAMPLES = Path(__file__).parents[2] / "examples"
SETUP = CompilerSetup(load_catalog(), Limits())
STEP = {"name": "a", "uses": "test.noop"}
WRONG: dict[str, Any] = {
    "an unknown engine and a step twice": {
        "steps": [STEP, STEP, {"name": "b", "uses": "test.nop"}]
    },
    "a condition that is not CEL": {"steps": [{**STEP, "when": "1 +"}]},
    "a field of no meaning": {"steps": [{**STEP, "wen": "1"}]},
    "a cycle": {
        "steps": [
            {**STEP, "inputs": {"x": "b.metrics"}},
            {"name": "b", "uses": "test.noop", "inputs": {"x": "a.metrics"}},
        ]
    },
    "a query of an unknown column": {
        "inputs": {"r": {"rows": [{"text": "a"}]}},
        "steps": [
            {
                "name": "find",
                "uses": "data.sql",
                "inputs": {"r": "inputs.r"},
                "with": {"query": "select txt from r"},
            }
        ],
    },
    "a wrong field and a wrong graph": {
        "priority": "high",
        "steps": [{**STEP, "after": ["b"]}],
    },
    "declarations that their values do not satisfy": {
        "params": {
            "a": {"type": "object", "schema": {"required": ["x"]}, "default": {}},
            "b": {"type": "string", "pattern": "^a", "default": "b"},
            "c": {"type": "integer", "required": True},
            "d": "five",
        },
        "budgetUsd": "${params.d}",
        "steps": [{**STEP, "timeout": "${params.c}m"}],
    },
    "too many steps": {"steps": [{**STEP, "matrix": {"n": list(range(10_001))}}]},
}
RIGHT: dict[str, Any] = {
    "rows and templates": {
        "params": {"text": "x", "list": [1, 2.5, None, {"a": True}]},
        "inputs": {"r": {"rows": [{"text": "a"}]}},
        "steps": [{"name": "m", "uses": "test.map", "inputs": {"rows": "inputs.r"}}],
        "outputs": {"rows": "m.rows"},
    },
    "parameters of every kind": {
        "params": {
            "rows": {"type": "list", "items": "object", "default": [{"text": "a"}]},
            "form": {"type": "object", "schema": {"required": ["x"]}, "default": {"x": 1}},
            "name": {"type": "string", "pattern": "^[a-z]+$", "default": "monday"},
            "n": [1, 2],
        },
        "budgetUsd": "0.50",
        "inputs": {"r": {"rows": "${params.rows}"}},
        "steps": [
            {
                "name": "m",
                "uses": "test.map",
                "inputs": {"rows": "inputs.r"},
                "matrix": {"n": "${params.n}"},
                "cache": {"salt": "${params.name}"},
            }
        ],
    },
    "a matrix and a condition": {
        "steps": [
            {**STEP, "matrix": {"n": [1, 2], "x": ["a", "b"]}, "with": {"value": "${matrix.n}"}},
            {
                "name": "b",
                "uses": "test.noop",
                "when": "steps['a[n=1,x=a]'].metrics.value > 0",
                "inputs": {"x": "a[n=2,x=a].metrics"},
            },
        ]
    },
}


@pytest.fixture
async def sandboxed() -> AsyncIterator[SandboxedCompiler]:
    made = SandboxedCompiler(SETUP)
    yield made
    await made.close()


async def outcome(
    compiler: SandboxedCompiler | InlineCompiler,
    document: dict[str, Any],
    shapes: tuple[WorkerShape, ...] = (),
) -> Plan | list[str]:
    try:
        checked = await compiler.check(document)
        local = (n for n, i in checked.inputs.items() if i.has_rows or i.value.startswith("./"))
        uploads = {name: f"cas:{name}" for name in local}
        columns = {name: {"text": "string"} for name in uploads}
        return await compiler.compile(CompileRequest(document, uploads, columns, shapes), checked)
    except SpecError as e:
        return [f"{p.path}: {p.message}" for p in e.problems]


async def test_problems_of_fields_and_of_the_graph_are_reported_together(
    sandboxed: SandboxedCompiler,
) -> None:
    found = await outcome(sandboxed, workflow("wrong", WRONG["a wrong field and a wrong graph"]))
    assert found == [
        "spec.priority: expected an integer, got the string 'high'",
        "spec.steps[0].after[0]: no step 'b'; there is a",
    ]


def children() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if "workflows" in p.cmdline()]


async def test_plans_and_errors_equal_those_of_the_in_process_compiler(
    sandboxed: SandboxedCompiler,
) -> None:
    inline = InlineCompiler(SETUP)
    documents = [workflow("wrong", spec) for spec in WRONG.values()]
    documents += [workflow("right", spec) for spec in RIGHT.values()]
    documents += [{"kind": "FlowMeshWorkflow"}, {"kind": "FlowMeshCachePolicy"}, {}]
    for name in ("agent", "best-of-four", "http", "temperatures"):
        documents.append(YAML(typ="safe").load(EXAMPLES / f"{name}.yaml"))
    plans = 0
    for document in documents:
        expected, found = await outcome(inline, document), await outcome(sandboxed, document)
        if isinstance(expected, Plan):
            plans += 1
            assert msgspec.json.encode(found) == msgspec.json.encode(expected)
        else:
            assert found == expected
            assert found
    assert plans >= len(RIGHT)
    assert sum(p.started for p in sandboxed.processes) == 1


async def test_a_plan_of_many_steps_arrives_in_parts_and_complete(
    sandboxed: SandboxedCompiler,
) -> None:
    spec = {"steps": [{**STEP, "matrix": {"n": list(range(5000))}}]}
    found = await outcome(sandboxed, workflow("wide", spec))
    assert isinstance(found, Plan)
    assert [s.matrix["n"] for s in found.steps] == list(range(5000))


async def test_integers_out_of_range_are_reported_as_a_document_error(
    sandboxed: SandboxedCompiler,
) -> None:
    spec = {"params": {"n": 2**70}, "steps": [STEP]}
    assert await outcome(sandboxed, workflow("large", spec)) == [
        ": an integer has more than 64 bits: can't serialize ints < -2**63 or > 2**64 - 1"
    ]


@pytest.mark.parametrize(
    ("code", "message", "starts"),
    [
        ("while True: pass", "compiling it takes more than 1 s of processor time", 1),
        (
            "import os; os.abort()",
            "more than 2048 MiB of memory .its process ended with code -6",
            2,
        ),
        ("x = bytearray(3 << 30)", "compiling it needs more than 2048 MiB of memory; split", 1),
        ("evaluate = lambda: evaluate(); evaluate()", "the document is nested too deeply", 1),
    ],
)
async def test_exceeding_a_limit_of_the_child_refuses_only_that_document(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, message: str, starts: int
) -> None:
    """The compiler is replaced by one that misbehaves, as if a limit had a gap."""
    (tmp_path / "sitecustomize.py").write_text(
        "import flowmesh_control.evaluators.compilation as c\n"
        "compile_workflow = c.compile_workflow\n"
        "def misbehave(workflow, *given, **more):\n"
        "    if workflow.metadata.name == 'hostile':\n"
        + "".join(f"        {line}\n" for line in code.split("; "))
        + "    return compile_workflow(workflow, *given, **more)\n"
        "c.compile_workflow = misbehave\n"
    )
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
    monkeypatch.setattr(compilers, "WAIT_FACTOR", 300.0)  # however busy this machine is
    compiler = SandboxedCompiler(SETUP, compile_s=1.0)
    with pytest.raises(ContentLimitError, match=message) as caught:
        await outcome(compiler, workflow("hostile", {"steps": [STEP]}))
    assert caught.value.where == "document"
    assert caught.value.remedy
    assert sum(p.started for p in compiler.processes) == starts
    assert isinstance(await outcome(compiler, workflow("honest", {"steps": [STEP]})), Plan)
    await compiler.close()
    assert not children()


async def test_an_unexpected_error_is_not_reported_as_a_document_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import flowmesh_control.evaluators.compilation as c\n"
        "def compile_workflow(*given, **more):\n"
        "    raise KeyError('x')\n"
        "c.compile_workflow = compile_workflow\n"
    )
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
    compiler = SandboxedCompiler(SETUP)
    with pytest.raises(RuntimeError, match="compiling failed: KeyError: 'x'") as caught:
        await outcome(compiler, workflow("honest", {"steps": [STEP]}))
    assert not isinstance(caught.value, FlowMeshError)
    await compiler.close()


async def test_a_tenant_has_one_of_two_places_while_another_waits() -> None:
    compiler = SandboxedCompiler(SETUP)
    for process in compiler.processes:
        await process.start()
    for child in children():
        child.suspend()
    documents = [workflow(f"w{n}", {"steps": [STEP]}, "team-a") for n in range(6)]
    hostile = [asyncio.create_task(compiler.check(d)) for d in documents]
    await until(lambda: not compiler._free)
    honest = asyncio.create_task(
        compiler.check(workflow("honest", {"steps": [STEP]}, namespace="team-b"))
    )
    await until(lambda: "team-b" in {w.tenant for w in compiler._places._waiting})
    children()[0].resume()
    assert (await honest).namespace == "team-b"
    assert sum(t.done() for t in hostile) <= 2
    for child in children():
        child.resume()
    await asyncio.gather(*hostile)
    await compiler.close()


async def test_a_compiler_that_cannot_start_is_not_reported_as_a_document_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"document": workflow("honest", {"suspend": True, "steps": [STEP]})}
    async with fabric_at(tmp_path, sandboxed=True) as fabric:
        with monkeypatch.context() as patched:
            patched.setattr(process_module.sys, "executable", "/bin/false")
            told = await fabric.call("POST", "/v1/runs", body=body, status=503)
        assert "the process that evaluates workflows does not start" in told["error"]["message"]
        await fabric.call("POST", "/v1/runs", body=body, status=201)
