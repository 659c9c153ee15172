"""Replicas of services: loaded, kept, and closed when they are off the list."""

from typing import Any

from tests.golden.agent.format import (
    Attempt,
    Calls,
    Component,
    Fault,
    HubExit,
    ListedReplica,
    Scenario,
    Send,
    Signature,
    Sigterm,
)
from tests.golden.agent.written.building import FIRST, listed, scenario


def scenarios() -> list[Scenario]:
    using: dict[str, Any] = {"engine": "pair", "memory_mib": 400, "load_s": 0.5}
    chat, draft = ListedReplica("chat", "s1"), ListedReplica("draft", "s2")
    return [
        scenario(
            "Replicas are loaded and kept while attempts, their hosts and the hub come and go",
            Component("m1", fetch_s=1.0),
            Component("m2", fetch_s=1.0),
            Signature("s1", components=("m1",), **using),
            Signature("s2", components=("m2",), **using),
            Signature("other", "plain", memory_mib=300),
            Signature("large", "plain", memory_mib=900),
            Attempt("shares", "s1", run_s=1.0),
            Attempt("beside", "other", run_s=1.0),
            Attempt("displaced", "large"),
            FIRST,
            listed(0.1, "s2"),
            Send(0.2, replicas=(chat,), routers=("unix:/run/router",)),
            Send(4.0, assign=("shares", "beside", "displaced")),
            Calls(4.5, "chat", calls=2, units=10),
            Fault(6.0, "s1"),
            HubExit(9.0),
            Send(11.0, replicas=(chat, draft)),
            Calls(14.0, "chat", calls=1, units=5),
            Send(15.0, replicas=(draft,)),
            Calls(16.0, "chat", calls=0, units=9),
            Sigterm(18.0),
            until_s=30.0,
            hub_start_s=0.3,
        ),
    ]
