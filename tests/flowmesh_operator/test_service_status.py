"""The conditions of a service's object: MeetsSlo where there is a target, also as unknown."""

from typing import Any

import msgspec
import pytest

from flowmesh_api.v1.services import ServiceCondition, ServiceStatus
from flowmesh_operator.kube.conditions import StatusContext
from flowmesh_operator.services.status import status_of

READY = ServiceCondition("Ready", "True", "ReplicasReady")


def conditions(*more: ServiceCondition, before: Any = None, now_s: float = 0.0) -> dict[str, Any]:
    found = ServiceStatus("ask", "team-a", "ask", "Ready", 1, 0.0, conditions=(READY, *more))
    context = StatusContext(generation=1, epoch=1, now_s=now_s, before=before or {})
    return status_of(found, None, "https://router/v1", context)


@pytest.mark.parametrize(
    ("status", "reason"),
    [("True", "RepliesInTime"), ("False", "StagesTooSlow"), ("Unknown", "FewRequests")],
)
def test_the_condition_is_that_of_the_control_plane(status: str, reason: str) -> None:
    one = ServiceCondition("MeetsSlo", status, reason, "stage rank alone takes 300 ms of it")
    *others, last = conditions(one)["conditions"]
    assert [c["type"] for c in others] == ["Accepted", "Ready"]
    assert [last[k] for k in ("type", "status", "reason", "message")] == [
        "MeetsSlo",
        status,
        reason,
        "stage rank alone takes 300 ms of it",
    ]


def test_a_service_without_a_target_has_no_such_condition() -> None:
    assert [c["type"] for c in conditions()["conditions"]] == ["Accepted", "Ready"]


def test_the_capacity_is_a_text_once_it_is_known() -> None:
    for best_per_s, text in ((0.0, ""), (4.8, "4.8/s"), (120.0, "120/s")):
        found = ServiceStatus("ask", "team-a", "ask", "Ready", 1, 0.0, best_per_s=best_per_s)
        found = msgspec.structs.replace(found, conditions=(READY,))
        context = StatusContext(generation=1, epoch=1, now_s=0.0, before={})
        assert status_of(found, None, "", context)["capacity"] == text


def test_the_time_of_transition_stays_while_only_the_message_changes() -> None:
    def slo(status: str, message: str) -> ServiceCondition:
        return ServiceCondition("MeetsSlo", status, "RepliesLate", message)

    first = conditions(slo("False", "2 % of replies"), now_s=10.0)
    second = conditions(slo("False", "3 % of replies"), before=first, now_s=20.0)
    third = conditions(slo("True", ""), before=second, now_s=30.0)
    times = [s["conditions"][-1]["lastTransitionTime"] for s in (first, second, third)]
    assert times[0] == times[1] < times[2]
