"""Attacker: T2, a tenant with a token of the API; also one of a group that shares results.

Action: asks for lineage by beginnings of digests, of every length, and by names of others' outputs.
Must not happen: an answer completes a digest of others, or names a run that the user may not list.
"""

from pathlib import Path

import pytest
from tests.attacks.tenants import ADMIN, ATTACKER, NAMESPACES, OWNER, SPEC, tenants
from tests.flowmesh_control.fabric import workflow
from tests.flowmesh_control.rights import EDIT

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy

pytestmark = pytest.mark.slow

STRANGER = "stranger"
LENGTHS = (0, 1, 2, 4, 6, 8, 11, 12, 13, 16, 32, 63, 64)
RIGHTS = {
    ADMIN: {"*": EDIT},
    OWNER: {"team-a": EDIT},
    ATTACKER: {"team-b": EDIT},
    STRANGER: {"team-c": EDIT},
}


def asked_for(name: str, answer: bytes) -> bytes:
    """Returns an answer without the name that it repeats, which may be shortened."""
    for shown in (name, name[:24], name[:13], name[:12]):
        answer = answer.replace(shown.encode() or b"-", b"ASKED")
    return answer


async def test_beginnings_of_digests_name_only_runs_that_the_user_may_list(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as fabric:
        group = CachePolicy("g", Sharing.GROUP, group="g", namespaces=("team-a", "team-b"))
        await fabric.ask(ADMIN, "PUT", "/v1/policies", body=[group])
        fabric.worker("local-w1")
        uids = {}
        for who in (OWNER, ATTACKER):
            spec = {**SPEC, "outputs": {"out": "one.metrics"}}
            fabric.token = f"{who}-token"
            uids[who] = await fabric.submit(workflow("made", spec, NAMESPACES[who]))
            assert (await fabric.ended(uids[who])).phase == "Succeeded"
        outputs = await fabric.ask(OWNER, "GET", f"/v1/runs/{uids[OWNER]}/outputs")
        digest = outputs["out"]["digest"]
        # Each sees its own run by a beginning that is long enough, and an administrator both.
        walked = {}
        for who in (ADMIN, OWNER, ATTACKER):
            walk = await fabric.ask(who, "GET", f"/v1/lineage/{digest[:12]}")
            walked[who] = {made["uid"] for made in walk["derivations"]}
        assert walked == {
            ADMIN: set(uids.values()), OWNER: {uids[OWNER]}, ATTACKER: {uids[ATTACKER]}
        }  # fmt: skip
        # One without such a run learns from no beginning that there is anything.
        absent = "f" * 64 if digest[0] != "f" else "e" * 64
        for length in LENGTHS:
            for more in ("", "?direction=down", "?namespace=team-c"):
                for path in ("/v1/lineage/{}", "/v1/lineage/{}/rows"):
                    answers = []
                    for name in (digest[:length], absent[:length]):
                        status, found = await fabric.answer(STRANGER, path.format(name) + more)
                        assert status == 404, (path, length, found)
                        assert not [u for u in uids.values() if u.encode() in found]
                        answers.append(asked_for(name, found))
                    assert length < 12 or answers[0] == answers[1]
