"""Revocation of a data set: what was made from it goes, and everything else stays."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import Place, place
from tests.flowmesh_control import waiting
from tests.flowmesh_control.derived_work import (
    OTHER_ROWS,
    ROWS,
    Trainer,
    ask,
    blobs_in,
    everything,
    revoke,
    submit,
    trainer,
    training,
    upload,
    upload_model,
)
from tests.flowmesh_control.fabric import KEY, workflow

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.revocation import RevocationReport
from flowmesh_control.records.keys import REVOKED, final_key
from flowmesh_control.request_log.signatures import Signer, verified_payload
from flowmesh_control.revocation.derivations import Content
from flowmesh_control.revocation.erasure import Eraser
from flowmesh_control.revocation.service import PAYLOAD_TYPE
from flowmesh_core.sharing import read_reference

TEXTS = ("{{ text }}", "a {{ text }}", "b {{ text }}")


@dataclass
class Trained:
    """A data set, other content, and the runs that trained on them."""

    there: Place
    trainer: Trainer
    rows: dict[str, Any]
    other: dict[str, Any]
    base: dict[str, Any]
    runs: list[str]
    unrelated: str

    @property
    def marker(self) -> bytes:
        """What everything quotes that was made from the data set."""
        return f"of {self.rows['digest']}".encode()

    def spec(self, text: str = TEXTS[0]) -> dict[str, Any]:
        return training(self.rows["reference"], self.base["reference"], text)


@contextlib.asynccontextmanager
async def trained() -> AsyncIterator[Trained]:
    """Three models of one data set, and one of another."""
    async with place() as there:
        one = await trainer(there)
        answers = asyncio.create_task(one.answer_always())
        rows, other = await upload(there, ROWS), await upload(there, OTHER_ROWS)
        base = await upload_model(there)
        found = Trained(there, one, rows, other, base, [], "")
        found.runs = [await submit(there, f"m{n}", found.spec(t)) for n, t in enumerate(TEXTS)]
        spec = training(other["reference"], base["reference"], TEXTS[0])
        found.unrelated = await submit(there, "other", spec)
        for uid in (*found.runs, found.unrelated):
            assert (await there.ended(uid)).phase == "Succeeded"
        try:
            yield found
        finally:
            answers.cancel()


async def assert_nothing_left(them: Trained) -> None:
    there = them.there
    left = await everything(there.store)
    assert them.marker not in left
    assert f"trained on {them.rows['digest']}".encode() not in left
    for uid in them.runs:
        paths = ["", "/outputs", "/logs", "/receipt", "/made", "/openlineage", "/trace"]
        answers = [await ask(there, "GET", f"/v1/runs/{uid}{path}") for path in paths]
        assert [status for status, _ in answers] == [200] * len(paths)
        assert all(them.marker not in body for _, body in answers)
        assert b'"revoked":true' in answers[1][1]
        for name in ("model", "loss", "train.model", "train.metrics"):
            assert (await ask(there, "GET", f"/v1/runs/{uid}/outputs/{name}"))[0] == 410
    status, content = await ask(there, "GET", f"/v1/runs/{them.unrelated}/outputs/model")
    assert (status, b"weights of" in content) == (200, True)


async def test_nothing_of_a_revoked_data_set_and_its_three_models_is_left_and_the_rest_stays() -> (
    None
):
    async with trained() as them:
        there = them.there
        assert them.marker in await everything(there.store)
        planned = await revoke(there, them.rows["reference"], dry_run=True)
        assert them.marker in await everything(there.store)
        done = (await revoke(there, them.rows["reference"])).report
        assert (planned.report.found, planned.report.deleted) == (done.found, done.deleted)
        assert done.found == {
            "results": 3, "dataset": 1, "metrics": 1, "model": 3, "runs": 3, "steps": 3,
        }  # fmt: skip
        assert done.workers_asked == ("good-w",)
        await assert_nothing_left(them)
        forgotten = them.trainer.worker.forgotten
        await waiting.until(lambda: forgotten, within_s=20)
        assert read_reference(them.rows["reference"]).blob in forgotten
        assert read_reference(them.base["reference"]).blob not in forgotten
        # The model that they began at, and the curve that every run makes, are needed elsewhere.
        assert len(await blobs_in(there.store, "ns-team-a")) > 3


@pytest.mark.parametrize("by_parameter", [False, True])
async def test_rows_of_a_revoked_data_set_are_left_in_no_record_of_a_workflow(
    *, by_parameter: bool
) -> None:
    rows = [{"text": f"private words {n}"} for n in range(3)]
    async with trained() as them:
        there = them.there
        spec = training("", them.base["reference"], "c {{ text }}")
        spec["inputs"]["rows"] = {"rows": rows}
        if by_parameter:
            spec["inputs"]["rows"] = {"rows": [rows[0], "${params.second}", "${params.rest.third}"]}
            declared = {"type": "object", "default": rows[1]}
            spec["params"] = {"second": declared, "rest": {"third": rows[2]}, "other": "stays"}
        uid = await submit(there, "inline", spec)
        assert (await there.ended(uid)).phase == "Succeeded"
        before = await everything(there.store)
        assert b"private words 1" in before
        assert b"private words 2" in before
        await revoke(there, them.rows["reference"])
        left = await everything(there.store)
        assert b"private words" not in left
        assert b"stays" in left or not by_parameter


async def test_the_report_is_signed() -> None:
    async with trained() as them:
        answer = await revoke(them.there, f"{them.runs[0]}/model")
        keys = Signer(KEY).public_keys()
        payload = verified_payload(answer.document.encode(), PAYLOAD_TYPE, keys)
        assert msgspec.json.decode(payload, type=RevocationReport) == answer.report
        assert answer.report.found["model"] == 1
        # The data set and its other models stay.
        status, _ = await ask(them.there, "GET", f"/v1/runs/{them.runs[1]}/outputs/model")
        assert status == 200


async def test_content_that_is_uploaded_again_is_new_and_what_was_made_before_stays_dead() -> None:
    async with trained() as them:
        there, store = them.there, them.there.store
        before = [
            (key, (await store.records.read(key)).data)  # type: ignore[union-attr]
            async for key in store.records.keys("actions/")
        ]
        await revoke(there, them.rows["reference"])
        body = {"document": workflow("refused", them.spec())}
        assert (await ask(there, "POST", "/v1/runs", json=body))[0] == 422
        again = await upload(there, ROWS)
        assert again["digest"] == them.rows["digest"]
        for key, data in before:  # a backup that somebody put back
            if await store.records.read(key) is None:
                await store.records.write(key, data)
        uid = await submit(there, "again", them.spec())
        ended = await there.ended(uid)
        assert (ended.phase, ended.executed, ended.hits) == ("Succeeded", 1, 0)
        status, content = await ask(there, "GET", f"/v1/runs/{uid}/outputs/model")
        assert (status, them.marker in content) == (200, True)
        # The model was made anew, so a reference to it is valid again.
        reference = ended.outputs["model"]["reference"]
        path = f"/v1/content?reference={reference}&namespace=team-a"
        assert (await ask(there, "GET", path))[0] == 200
        assert (await ask(there, "GET", f"/v1/runs/{them.runs[0]}/outputs/model"))[0] == 410
        second = (await revoke(there, them.rows["reference"])).report
        assert (second.generation, second.deleted["results"]) == (2, 3)


async def test_work_on_revoked_content_ends_as_revoked_and_no_tenant_pays() -> None:
    async with trained() as them:
        there = them.there
        them.trainer.holds = True
        uid = await submit(there, "flying", them.spec("c {{ text }}"))
        assigned = them.trainer.worker.assigned
        await waiting.until(lambda: len(assigned) == 5, within_s=20)
        await revoke(there, them.rows["reference"])
        await waiting.until(lambda: them.trainer.worker.cancelled, within_s=20)
        them.trainer.holds = False  # its end is reported, as if the cancel had come too late
        ended = await there.ended(uid)
        assert (ended.phase, ended.reason, ended.paid_nanousd) == ("Failed", "revoked", 0)
        assert ended.steps[0].reason == "revoked"
        them.runs = them.runs[:3]
        await assert_nothing_published(there, uid)


async def assert_nothing_published(there: Place, uid: str) -> None:
    assert all(result.run_uid != uid for result in await there.published())


@pytest.mark.parametrize("part", ["delete_results", "delete_blobs", "erasable"])
async def test_the_next_leader_completes_a_revocation_that_was_interrupted(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trained() as them:
        there = them.there

        async def die(*_: Any, **__: Any) -> None:
            raise RuntimeError("the control plane dies here")

        with monkeypatch.context() as patched:
            patched.setattr(Eraser, part, die)
            path = "/v1/revoke?namespace=team-a"
            target = {"target": them.rows["reference"]}
            assert (await ask(there, "POST", path, json=target))[0] == 500
        assert them.marker in await everything(there.store)
        await there.lead_anew()
        revocations = there.control._started().revocations
        await waiting.until(lambda: all(r.is_complete for r in revocations.all()), within_s=20)
        await assert_nothing_left(them)
        assert [key async for key in there.store.records.keys(REVOKED)]


async def test_results_of_other_namespaces_stay_and_are_counted() -> None:
    async with trained() as them:
        there = them.there
        policy = CachePolicy("both", Sharing.GROUP, "g", namespaces=("team-a", "team-b"))
        await there.control.services.policies.put(policy)
        rows, base = await upload(there, ROWS, "team-b"), await upload_model(there, "team-b")
        spec = training(rows["reference"], base["reference"], "d {{ text }}")
        theirs = await submit(there, "theirs", spec, "team-b")
        assert (await there.ended(theirs)).phase == "Succeeded"
        blob = read_reference(them.rows["reference"]).blob
        scopes = ("ns-team-a", "group-g")
        content = Content(them.rows["digest"], "dataset", blob, scopes)
        # As the owner of team-a, who is no administrator.
        answer = await there.control.services.revocation.revoke(content, "team-a")
        assert [(k.count, k.what) for k in answer.report.remaining if "namespaces" in k.reason] == [
            (1, "results")
        ]
        await assert_nothing_shown_of_own(them)
        assert (await ask(there, "GET", f"/v1/runs/{theirs}/outputs/model"))[0] == 200
        assert await there.store.records.read(final_key(theirs)) is not None


async def assert_nothing_shown_of_own(them: Trained) -> None:
    for uid in them.runs:
        assert (await ask(them.there, "GET", f"/v1/runs/{uid}/outputs/model"))[0] == 410
