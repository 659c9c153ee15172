"""Engines that fall asleep to free memory, and wake."""

from typing import Any

from tests.golden.agent.format import Attempt, Scenario, Send, Signature
from tests.golden.agent.written.building import FIRST, scenario


def scenarios() -> list[Scenario]:
    using: dict[str, Any] = {
        "engine": "model",
        "memory_mib": 700,
        "load_s": 2.0,
        "close_s": 0.5,
        "asleep_mib": 300,
        "sleep_s": 0.4,
        "wake_s": 0.2,
    }
    return [
        scenario(
            "Engines take turns: each falls asleep for the other, and those that cannot are ended",
            Signature("a", **using),
            Signature("b", **using),
            Signature("cannot", **using, sleep_fails=True),
            Signature("stays", **using, wake_fails=True),
            *(Attempt(f"a{n}", "a", run_s=0.5) for n in range(3)),
            *(Attempt(f"b{n}", "b", run_s=0.5) for n in range(3)),
            Attempt("c0", "cannot", run_s=0.5),
            *(Attempt(f"s{n}", "stays", run_s=0.5) for n in range(2)),
            FIRST,
            Send(0.1, assign=("a0",)),
            Send(5.0, assign=("b0",)),
            Send(10.0, assign=("a1",)),
            Send(15.0, assign=("b1", "a2")),
            Send(20.0, assign=("c0",)),
            Send(25.0, assign=("s0",)),
            Send(30.0, assign=("b2",)),
            Send(35.0, assign=("s1",)),
            until_s=45.0,
            devices=1,
            device_mib=1000,
            memory_mib=2000,
            sleep_mib=700,
        ),
    ]
