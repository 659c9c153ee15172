"""Revocation of a data set: what was made from it goes, and everything else stays."""

from tests.attacks.by_hand import place
from tests.flowmesh_control.derived_work import (
    OTHER_ROWS,
    ROWS,
    ask,
    everything,
    in_background,
    revoke,
    submit,
    trainer,
    training,
    upload,
    upload_model,
)


async def test_nothing_of_a_revoked_data_set_and_its_three_models_is_left_and_the_rest_stays() -> (
    None
):
    async with place() as there:
        one = await trainer(there)
        answers = in_background([one])
        rows, other, base = (
            await upload(there, ROWS),
            await upload(there, OTHER_ROWS),
            await upload_model(there),
        )
        texts = ["{{ text }}", "a {{ text }}", "b {{ text }}"]
        runs = [
            await submit(there, f"m{n}", training(rows["reference"], base["reference"], text))
            for n, text in enumerate(texts)
        ]
        unrelated = await submit(
            there, "other", training(other["reference"], base["reference"], texts[0])
        )
        for uid in (*runs, unrelated):
            assert (await there.ended(uid)).phase == "Succeeded"
        marker = f"of {rows['digest']}".encode()
        assert marker in await everything(there.store)
        planned = await revoke(there, rows["reference"], dry_run=True)
        assert marker in await everything(there.store)
        done = await revoke(there, rows["reference"])
        assert (planned.report.found, planned.report.deleted) == (
            done.report.found,
            done.report.deleted,
        )
        assert done.report.found == {
            "results": 3, "dataset": 1, "metrics": 1, "model": 3, "runs": 3, "steps": 3,
        }  # fmt: skip
        left = await everything(there.store)
        assert marker not in left
        assert f"trained on {rows['digest']}".encode() not in left
        for uid in runs:
            status, shown = await ask(there, "GET", f"/v1/runs/{uid}/outputs")
            assert status == 200
            assert b'"revoked":true' in shown
            assert marker not in shown
            assert (await ask(there, "GET", f"/v1/runs/{uid}/outputs/model"))[0] == 410
            assert marker not in (await ask(there, "GET", f"/v1/runs/{uid}/logs"))[1]
        status, content = await ask(there, "GET", f"/v1/runs/{unrelated}/outputs/model")
        assert (status, b"weights of" in content) == (200, True)
        for task in answers:
            task.cancel()
