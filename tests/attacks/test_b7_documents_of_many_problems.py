"""Attacker: T2, a tenant that may create services.
Action: applies a service with 5,000 fields that no service has, or that no engine knows.
Must not happen: the control plane, which suggests a name for each, answers nothing else meanwhile.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.attacks.stored_services import service
from tests.attacks.tenants import ATTACKER, OWNER, tenants
from tests.flowmesh_control.rights import EDIT

from flowmesh_control.api.services import COMMAS_MAX

RIGHTS = {
    OWNER: {"team-a": EDIT, "team-a/flowmeshservices": EDIT},
    ATTACKER: {"team-b": EDIT, "team-b/flowmeshservices": EDIT},
}
MODEL = "smollm2-135m-instruct"
MANY = {f"{n}dtype": 1 for n in range(5 * COMMAS_MAX)}


def unknown_fields(document: dict[str, Any]) -> None:
    document["spec"].update(MANY)


def unknown_parameters(document: dict[str, Any]) -> None:
    document["spec"]["components"]["llm"]["with"] = MANY


@pytest.mark.parametrize("add", [unknown_fields, unknown_parameters])
async def test_a_service_of_very_many_fields_is_refused_unread(tmp_path: Path, add: Any) -> None:
    async with tenants(tmp_path, RIGHTS) as there:
        document = service("team-b", MODEL)
        add(document)
        body = {"document": document}
        answer = await there.ask(ATTACKER, "POST", "/v1/services", body=body, status=400)
        assert "commas" in answer["error"]["message"]
        few = service("team-a", MODEL)
        few["spec"]["components"]["llm"]["with"] = {"dtipe": "float32"}
        wrong = await there.ask(OWNER, "POST", "/v1/services", body={"document": few}, status=422)
        [problem] = wrong["error"]["problems"]
        assert "did you mean 'dtype'" in problem["message"]
