"""Conditions of objects, with the time at which each last changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flowmesh_operator.kube.timestamps import timestamp

_STATUS = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """The new value of one condition; ``holds`` is None where it is not known."""

    type: StrEnum
    holds: bool | None
    reason: StrEnum
    message: str = ""


@dataclass(frozen=True, slots=True)
class StatusContext:
    """The object, epoch and time that a status is written for.

    Attributes:
        generation: the generation of the spec that was reconciled.
        epoch: the leader's epoch.
        now_s: seconds since 1970.
        before: the object's current status, for the transition times of conditions.
    """

    generation: int
    epoch: int
    now_s: float
    before: Mapping[str, Any]

    def conditions(
        self, said: Iterable[ConditionUpdate], *, most_chars: int
    ) -> list[dict[str, Any]]:
        """Returns Kubernetes conditions; the transition time changes only with the status.

        Args:
            said: the new conditions.
            most_chars: limit of a message.
        """
        known = {c.get("type"): c for c in self.before.get("conditions") or []}
        found = []
        for one in said:
            status = _STATUS[one.holds]
            former = known.get(one.type, {})
            same = former.get("status") == status and former.get("lastTransitionTime")
            found.append(
                {
                    "type": str(one.type),
                    "status": status,
                    "reason": str(one.reason),
                    "message": one.message[:most_chars],
                    "lastTransitionTime": same or timestamp(self.now_s),
                    "observedGeneration": self.generation,
                }
            )
        return found
