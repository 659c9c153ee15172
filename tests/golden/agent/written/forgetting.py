"""Components that are revoked."""

from typing import Any

from tests.golden.agent.format import Attempt, Component, Scenario, Send, Signature
from tests.golden.agent.written.building import FIRST, scenario


def scenarios() -> list[Scenario]:
    models = tuple(Component(f"m{i}", fetch_s=0.5) for i in (1, 2, 3))
    using: dict[str, Any] = {"engine": "plain", "memory_mib": 200, "load_s": 0.5}
    return [
        scenario(
            "Hosts that have a revoked component are ended, whatever they do",
            *models,
            Signature("busy", components=("m1",), **using),
            Signature("idle", components=("m2",), **using),
            Signature("other", components=("m3",), **using),
            Attempt("runs", "busy", run_s=30.0),
            Attempt("has-run", "idle", run_s=1.0),
            Attempt("goes-on", "other", run_s=8.0),
            FIRST,
            Send(0.1, assign=("runs", "has-run", "goes-on")),
            Send(5.0, forget=("m1", "m2", "blob")),
            until_s=14.0,
        ),
    ]
