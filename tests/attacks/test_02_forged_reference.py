"""Attacker: T2, a tenant with a token of the API, who knows digests of another tenant's content.

Action: makes references itself: forged, cut, moved or stretched MACs, other kinds, keys and forms.
Must not happen: one of them is taken, or an answer tells which content exists.
"""

import re
from pathlib import Path

from tests.attacks.tenants import ATTACKER, OWNER, tenants

ROWS = b'{"secret":"of team-a"}\n'
FORGED = {
    "zeros": "cas:dataset:{digest}.0000000000000000000000000000000000",
    "own MAC": "cas:dataset:{digest}.{own_mac}",
    "another last character": "cas:dataset:{digest}.{cut}{other}",
    "another first character": "cas:dataset:{digest}.{key}{changed}",
    "cut": "cas:dataset:{digest}.{cut}",
    "empty": "cas:dataset:{digest}.",
    "none": "cas:dataset:{digest}",
    "longer": "cas:dataset:{digest}.{mac}0",
    "twice": "cas:dataset:{digest}.{mac}.{mac}",
    "upper case": "cas:dataset:{digest}.{upper}",
    "another key": "cas:dataset:{digest}.01{rest}",
    "an unknown key": "cas:dataset:{digest}.ff{rest}",
    "a key that is none": "cas:dataset:{digest}.zz{rest}",
    "as a blob": "cas:blob:{digest}.{mac}",
    "as a model": "cas:model:{digest}.{mac}",
    "as metrics": "cas:metrics:{digest}.{mac}",
    "a kind that is none": "cas:rows:{digest}.{mac}",
    "no kind": "cas:{digest}.{mac}",
    "a path": "cas:dataset:../{digest}.{mac}",
    "a scope": "cas:dataset:ns-team-a/{digest}.{mac}",
    "the MAC of other content": "cas:dataset:{own}.{mac}",
    "a line break": "cas:dataset:{digest}.{mac}%0a",
    "a NUL": "cas:dataset:{digest}.{mac}%00",
    "digits of another script": "cas:dataset:{digest}.{key}%D9%A0%D9%A0",
    "another scheme": "CAS:dataset:{digest}.{mac}",
}


def parts(reference: str) -> tuple[str, str]:
    digest, _, mac = reference.rpartition(":")[2].partition(".")
    return digest, mac


def known(theirs: str, own: str) -> dict[str, str]:
    """The parts that the attacker can make forms of; even with the valid MAC of the other scope."""
    (digest, mac), (own_digest, own_mac) = parts(theirs), parts(own)
    return {
        "digest": digest, "mac": mac, "own": own_digest, "own_mac": own_mac, "key": mac[:2],
        "rest": mac[2:], "cut": mac[:-1], "other": "0" if mac[-1] != "0" else "1",
        "changed": ("0" if mac[2] != "0" else "1") + mac[3:], "upper": mac.upper() + "A",
    }  # fmt: skip


async def test_no_forged_reference_is_taken(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        theirs = await fabric.ask(
            OWNER, "POST", "/v1/datasets?namespace=team-a", data=ROWS, status=201
        )
        own = await fabric.ask(
            ATTACKER, "POST", "/v1/datasets?namespace=team-b", data=b'{"n":1}\n', status=201
        )
        valid = known(theirs["reference"], own["reference"])
        # In the attacker's namespace, and in the owner's, where the owner uses the same forms.
        for who, namespace in ((ATTACKER, "team-b"), (OWNER, "team-a")):
            view = f"/v1/content?namespace={namespace}&reference="
            for name, form in FORGED.items():
                status, answer = await fabric.answer(who, view + form.format(**valid))
                assert status in (400, 403), (who, name, answer)
                assert b"of team-a" not in answer, name
        forged = FORGED["zeros"].format(**valid)
        of_nothing = forged.replace(valid["digest"], "0" * 64)
        view = "/v1/content?namespace=team-b&reference="
        answers = [await fabric.answer(ATTACKER, view + r) for r in (forged, of_nothing)]
        there, absent = (re.sub(rb"cas:[0-9a-z:.]*", b"ASKED", answer) for _, answer in answers)
        assert there == absent
        assert await fabric.answer(ATTACKER, view + own["reference"]) == (200, b'{"n":1}\n')
        view = f"/v1/content?namespace=team-a&reference={theirs['reference']}"
        assert await fabric.answer(OWNER, view) == (200, ROWS)
