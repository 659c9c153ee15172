"""A program on a laptop: a fabric is started for it, and it sees rows, cost and failures."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flowmesh_sdk.test_workflow import DECLARED, TEXT

import flowmesh_sdk as fm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fm.Client]:
    """Yields a client of the fabric of another program, which ends with that."""
    folder = tmp_path_factory.mktemp("fabric") / "state"
    program = textwrap.dedent(f"""
        import sys
        import flowmesh_sdk as fm
        client = fm.connect(state_dir={str(folder)!r})
        workers = client._http.get("/v1/workers", list[dict])
        print("connected to", len(workers), "worker", flush=True)
        sys.stdin.read()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "connected to 1 worker\n", "plans need it"
        with fm.connect(state_dir=folder, start=False) as client:
            yield client
        process.communicate()
    assert process.returncode == 0
    with pytest.raises(fm.NoFabricError):
        fm.connect(state_dir=folder, start=False)


@pytest.fixture
def workflow(tmp_path: Path) -> fm.Workflow:
    (tmp_path / "numbers.jsonl").write_text("".join(f'{{"a": {n}}}\n' for n in range(100)))
    (tmp_path / "flow.yaml").write_text(TEXT)
    return fm.load(tmp_path / "flow.yaml")


def test_rows_cost_and_reasons_of_a_run(
    client: fm.Client, workflow: fm.Workflow, capsys: pytest.CaptureFixture[str]
) -> None:
    run = workflow.run(client=client, progress=True)
    assert "doubled: double completed, 1 ran, 0 reused" in capsys.readouterr().err
    rows = run.result()["rows"]
    assert isinstance(rows, fm.Rows)
    assert (rows.count, len(rows)) == (100, 100)
    assert sorted(row["b"] for row in rows) == [3 * n for n in range(100)]
    assert len(rows.head()) == 5
    assert rows.to_arrow().num_rows == len(rows.to_pandas()) == 100
    assert rows.sql("select max(b) as most from rows").to_pylist() == [{"most": 297}]
    with pytest.raises(fm.FlowMeshError, match='the tables are "rows"'):
        rows.sql("select b from row")
    assert run.receipt().paid_usd > 0
    assert run.why("double").step.state == "COMPLETED"
    assert "caption" in run._repr_html_() + rows._repr_html_() + run.receipt()._repr_html_()

    again = workflow.with_values(params={"times": 3}).plan(client=client)
    assert [step.expect for step in again.steps] == ["hit"]
    assert again.run().receipt().paid_usd == 0

    document = workflow.to_dict()
    document["spec"]["steps"][0]["with"]["query"] = "select max(b) as most from numbers"
    reading = fm.load(document, inputs={"numbers": run.output("rows")})
    later = reading.run(client=client)
    most = later.result()["rows"]
    assert isinstance(most, fm.Rows)
    assert most.to_list() == [{"most": 297}]
    made = {derivation.uid for derivation in later.lineage("rows").derivations}
    assert {run.uid, later.uid} <= made
    assert later.lineage("rows", rows=True).digest == later.lineage("rows").digest
    assert reading.run(client=client).receipt().executed == 0
    run.delete()
    with pytest.raises(fm.InvalidWorkflowError, match=f"there is no run '{run.uid}'"):
        reading.submit(client=client)


def test_declared_parameters_are_asked_for_and_give_the_results_of_values_written_out(
    client: fm.Client, workflow: fm.Workflow
) -> None:
    text = DECLARED.replace("rate: 0.5", "name: {type: string, required: true}")
    declared = fm.load(text).to_dict()
    template = fm.Workflow(declared, folder=workflow.folder)
    assert [(p.path, p.message.partition(":")[0]) for p in template.validate(client=client)] == [
        ("spec.params.file", "params.file is required"),
        ("spec.params.name", "params.name is required"),
    ]
    values = {"file": "./numbers.jsonl", "name": "x"}
    beyond = template.with_values(params={**values, "times": 10})
    with pytest.raises(fm.InvalidArgumentError, match=r"^params: times is at most 9, got 10"):
        beyond.plan(client=client)
    (problem,) = beyond.validate(client=client)
    assert (problem.path, problem.message) == ("params.times", "times is at most 9, got 10")
    workflow.run(client=client)
    plan = template.with_values(params=values).plan(client=client)
    assert [step.expect for step in plan.steps] == ["hit"]


def test_a_failed_run_raises_its_step_reason_and_remedy(
    client: fm.Client, workflow: fm.Workflow
) -> None:
    document = workflow.to_dict()
    document["spec"]["steps"][0]["with"]["query"] = "select error('no such thing') as b"
    failing = fm.Workflow(document, folder=workflow.folder)
    with pytest.raises(fm.RunFailedError, match="no such thing") as failed:
        failing.run(client=client)
    assert failed.value.step == "double"
    assert failed.value.reason


async def test_an_event_loop_runs_and_reads_workflows_beside_other_tasks(
    client: fm.Client, workflow: fm.Workflow
) -> None:
    async with fm.AsyncClient(client.clone()) as fabric:
        assert await fabric.validate(workflow) == []
        documents = [workflow.with_values(params={"times": n}) for n in (5, 6, 7)]
        runs = await asyncio.gather(*map(fabric.run, documents))
        most = [
            max(row["b"] for row in await asyncio.to_thread(run_rows.to_list))
            for run in runs
            if isinstance(run_rows := (await run.result())["rows"], fm.Rows)
        ]
        assert most == [99 * n for n in (5, 6, 7)]
        assert {run.uid for run in runs} <= {r.uid for r in await fabric.list_runs()}
        found = await fabric.get_run(runs[0].uid)
        states = [status.phase async for status in found.watch()]
        assert states[-1] == "Succeeded"
        assert (await found.why("double")).step.state == "COMPLETED"
        origins = await found.lineage("rows", rows=True)
        assert origins.chunks or origins.whole
        forecast = await fabric.plan(documents[0])
        assert [step.expect for step in forecast.steps] == ["hit"]
        assert (await (await fabric.submit(documents[0])).receipt()).paid_usd == 0


async def test_a_cancelled_task_leaves_its_run_and_a_timeout_does_not(
    client: fm.Client, workflow: fm.Workflow
) -> None:
    def suspended(times: int) -> fm.Workflow:
        document = workflow.with_values(params={"times": times}).to_dict()
        document["metadata"]["name"] = f"times-{times}"
        document["spec"]["suspend"] = True
        return fm.Workflow(document, folder=workflow.folder)

    async with fm.AsyncClient(client.clone()) as fabric:
        with pytest.raises(fm.RunTimeoutError, match=r"within 0\.1 s: Suspended"):
            await fabric.run(suspended(11), timeout_s=0.1)
        assert not (await (await fabric.get_run("times-11")).status()).ended_s

        task = asyncio.create_task(fabric.run(suspended(12)))
        while "times-12" not in {run.name for run in await fabric.list_runs()}:
            assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(fm.RunFailedError):
            await (await fabric.get_run("times-12"))
        await (await fabric.get_run("times-11")).cancel()
