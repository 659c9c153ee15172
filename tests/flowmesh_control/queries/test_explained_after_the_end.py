"""``explain`` of a run that has ended gives the weights with which its steps were placed."""

import msgspec
from tests.attacks.by_hand import end_of, noop, place
from tests.flowmesh_control.test_damaged_records import damage

from flowmesh_api.v1.why import Explanation
from flowmesh_control.records.keys import spec_key


async def test_an_ended_run_is_explained_with_the_weights_of_its_plan_unless_it_is_damaged() -> (
    None
):
    async with place() as there:
        worker = await there.join("w")
        weights = {"alpha": 0.5, "beta": 2.0, "gamma": 0.25}
        uid = await there.submit("weighed", {**noop(), "weights": weights})
        (attempt,) = await worker.given()
        await worker.sync(ended=(end_of(attempt.attempt_id, attempt.action_id),))
        await there.ended(uid)

        async def explained() -> Explanation:
            data = await there.get(f"/v1/runs/{uid}/explain?step=one")
            return msgspec.json.decode(data, type=Explanation)

        found = await explained()
        assert found.weights == (0.5, 2.0, 0.25)
        assert len(found.attempts) == 1
        await there.lead_anew()
        assert (await explained()).weights == (0.5, 2.0, 0.25)
        await damage(there.store.records, spec_key(uid))
        assert (await explained()).weights == (0.0, 0.0, 0.0)
