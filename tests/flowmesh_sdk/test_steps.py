"""What a step of a run made, which the workflow need not name as an output."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import orjson
import pytest
from tests.attacks.by_hand import place
from tests.flowmesh_control.derived_work import (
    ROWS,
    Trainer,
    revoke,
    submit,
    trainer,
    training,
    upload,
    upload_model,
)
from tests.flowmesh_control.fabric import API_TOKEN
from tests.flowmesh_sdk.test_requests import at

import flowmesh_sdk as fm
from flowmesh_core.dataset import encode_manifest
from flowmesh_core.machine.step_results import dataset_artifact
from flowmesh_store.datasets import rows_to_chunks


@dataclass
class Training:
    """A run of one training, whose workflow has no outputs."""

    trainer: Trainer
    url: str
    uid: str


@contextlib.asynccontextmanager
async def trained(
    step: str = "train",
    *,
    holds: bool = False,
    curve: Sequence[dict[str, float]] = (),
    outputs: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Training]:
    async with place() as there:
        one = await trainer(there)
        one.holds = holds
        if curve:
            manifest, blobs = rows_to_chunks(curve)
            one.curve = dataset_artifact(manifest)
            one.curve_blobs = {**blobs, one.curve.blob: encode_manifest(manifest)}
        answers = asyncio.create_task(one.answer_always())
        rows, base = await upload(there, ROWS), await upload_model(there)
        spec = training(rows["reference"], base["reference"], "{{ text }}")
        spec["steps"][0] |= {"name": step, "matrix": {"lr": ["1/2"]}}
        uid = await submit(there, "tuned", {**spec, "outputs": {**outputs}})
        try:
            yield Training(one, there.control.url, uid)
        finally:
            answers.cancel()


async def test_the_ports_of_a_step_are_read_by_their_names(tmp_path: Path) -> None:
    async with trained() as made:

        def read(client: fm.Client) -> fm.RunStep:
            run = client.get_run(made.uid).wait()
            assert run.result() == {}
            step = run.step("train[lr=1/2]")
            step.model.download(tmp_path)
            curve = step.outputs["curve"]
            assert isinstance(curve, fm.Rows)
            assert curve.to_list() == []
            return step

        step = await at(made.url, read)
        assert (tmp_path / "model.safetensors").read_bytes().startswith(b"weights of ")
        assert str(step.metrics["loss"]).startswith("loss of ")
        assert (step.state, step.model.kind) == ("COMPLETED", "model")
        with pytest.raises(fm.MissingOutputError) as missing:
            _ = step.adapter
        assert "made no adapter; it made model, metrics, curve" in str(missing.value)
        async with fm.AsyncClient(fm.connect(made.url, token=API_TOKEN)) as client:
            run = await client.get_run(made.uid)
            assert (await run.step("train[lr=1/2]")).metrics == step.metrics


async def test_rows_of_a_step_that_came_with_its_result_are_read_after_the_run() -> None:
    curve = [{"loss": 0.5}, {"loss": 0.25}]
    async with trained(curve=curve) as made:

        def read(client: fm.Client) -> None:
            rows = client.get_run(made.uid).wait().step("train[lr=1/2]").outputs["curve"]
            assert isinstance(rows, fm.Rows)
            assert rows.to_list() == curve
            assert rows.head(1) == curve[:1]
            assert rows.to_arrow().to_pylist() == curve

        await at(made.url, read)


async def test_a_revoked_port_of_a_step_leaves_the_others_readable() -> None:
    async with trained(outputs={"loss": "train[lr=1/2].metrics"}) as made:
        there = made.trainer.there
        await there.ended(made.uid)
        status = orjson.loads(await there.get(f"/v1/runs/{made.uid}"))
        await revoke(there, status["outputs"]["loss"]["reference"])

        def read(client: fm.Client) -> fm.RunStep:
            step = client.get_run(made.uid).step("train[lr=1/2]")
            curve = step.outputs["curve"]
            assert isinstance(curve, fm.Rows)
            assert curve.to_list() == []
            assert step.model.kind == "model"
            assert list(step.outputs) == ["model", "metrics", "curve"]
            assert "metrics" in step.outputs
            for unreadable in (lambda: step.metrics, lambda: step.outputs["metrics"]):
                with pytest.raises(fm.ApiError, match="revoked") as refused:
                    unreadable()
                assert refused.value.status == 410
            return step

        step = await at(made.url, read)
        assert repr(step) == "<RunStep train[lr=1/2] COMPLETED: model, metrics, curve>"


async def test_a_step_that_has_not_ended_has_made_nothing_and_others_are_named() -> None:
    async with trained(holds=True) as made:

        def read(client: fm.Client) -> None:
            run = client.get_run(made.uid)
            with pytest.raises(fm.MissingOutputError, match="made no model; it made nothing"):
                _ = run.step("train[lr=1/2]").model
            with pytest.raises(fm.MissingOutputError) as missing:
                run.step("trian")
            assert "train[lr=1/2]" in missing.value.remedy

        await at(made.url, read)
