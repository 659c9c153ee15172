"""What a namespace may have under way, in a control plane without workers."""

import asyncio
from typing import Any

import pytest
from tests.attacks.by_hand import Place, noop, place
from tests.flowmesh_control.fabric import workflow

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.errors import QuotaExceededError
from flowmesh_control.runs.admission import Submission
from flowmesh_core.graph.limits import Limits
from flowmesh_core.spec.quota import STEPS_MAX


async def submit(
    there: Place, name: str, namespace: str, spec: dict[str, Any] | None = None
) -> str:
    document = workflow(name, spec or noop(name))
    accepted = await there.control.services.commands.submit(Submission(document, namespace))
    return accepted.uid


async def bound(there: Place, **limits: Any) -> None:
    quota = Quota(name="q", namespaces=("team-b",), **limits)
    await there.control.services.quotas.replace_all([quota], {"team-a": {}, "team-b": {}})


async def test_a_further_run_is_refused_until_one_has_ended_and_others_are_served() -> None:
    async with place() as there:
        await bound(there, unfinished_runs=2)
        first = await submit(there, "a", "team-b")
        await submit(there, "b", "team-b")
        with pytest.raises(QuotaExceededError) as refused:
            await submit(there, "c", "team-b")
        assert str(refused.value) == (
            "quota: namespace team-b has 2 unfinished runs, of at most 2; "
            "wait for one to end or ask an administrator"
        )
        assert refused.value.can_pass
        assert there.control.services.run_quota.available("team-b") == 0
        for name in "abcd":
            await submit(there, name, "team-a")
        await there.control.services.commands.cancel(first, "enough")
        await there.ended(first)
        assert there.control.services.run_quota.available("team-b") == 1
        await submit(there, "c", "team-b")


async def test_of_many_concurrent_submissions_only_as_many_as_fit_are_accepted() -> None:
    async with place() as there:
        await bound(there, unfinished_runs=3)
        answers = await asyncio.gather(
            *(submit(there, f"w{n}", "team-b") for n in range(20)), return_exceptions=True
        )
        assert sum(isinstance(a, QuotaExceededError) for a in answers) == 17
        assert there.control.services.quotas.refusals["unfinished-runs"] == 17


async def test_a_submission_that_joins_a_run_needs_no_free_quota() -> None:
    async with place() as there:
        await bound(there, unfinished_runs=1)
        uid = await submit(there, "a", "team-b")
        assert await submit(there, "a", "team-b") == uid


async def test_the_api_answers_403_with_the_code_and_the_metric_counts_it() -> None:
    async with place() as there:
        await bound(there, unfinished_runs=0)
        body = {"document": workflow("a", noop()), "namespace": "team-b"}
        headers = {"Authorization": "Bearer api-token"}
        url = f"{there.control.url}/v1/runs"
        async with there.http.post(url, json=body, headers=headers) as response:
            assert response.status == 403
            assert (await response.json())["error"]["code"] == "quota"
        page = (await there.get("/metrics")).decode()
        assert 'flowmesh_quota_refusals_total{limit="unfinished-runs"} 1.0' in page


async def test_a_workflow_of_more_steps_than_allowed_is_refused_permanently() -> None:
    async with place() as there:
        await bound(there, steps_per_run=1)
        steps = [{"name": n, "uses": "test.noop", "with": {"value": n}} for n in "xy"]
        with pytest.raises(QuotaExceededError, match="has 2 steps, of at most 1") as refused:
            await submit(there, "large", "team-b", {"steps": steps})
        assert not refused.value.can_pass
        await submit(there, "small", "team-b")


async def test_actions_in_flight_count_against_the_quota() -> None:
    async with place() as there:
        await bound(there, actions_in_flight=2)
        steps = [{"name": n, "uses": "test.noop", "with": {"value": n}} for n in "xy"]
        await submit(there, "a", "team-b", {"steps": steps})
        await there.heard(lambda: there.control.services.run_quota.in_flight("team-b") == 2)
        with pytest.raises(QuotaExceededError, match="has 2 actions in flight, of at most 2"):
            await submit(there, "b", "team-b")


async def test_runs_of_an_earlier_control_plane_count() -> None:
    async with place() as there:
        await submit(there, "a", "team-b")
        await there.lead_anew()
        await bound(there, unfinished_runs=1)
        with pytest.raises(QuotaExceededError):
            await submit(there, "b", "team-b")


async def test_the_quota_is_shown_with_what_is_used() -> None:
    async with place() as there:
        assert b'"quota":""' in await there.get("/v1/quota?namespace=team-b")
        await bound(there, unfinished_runs=5, weight=3.0)
        await submit(there, "a", "team-b")
        shown = await there.get("/v1/quota?namespace=team-b")
        assert b'"weight":3.0' in shown
        assert b'{"name":"unfinished runs","most":5.0,"used":1.0}' in shown


def test_a_quota_cannot_raise_the_general_limit_of_steps() -> None:
    assert STEPS_MAX == Limits().steps == Quota(name="q").steps_per_run
