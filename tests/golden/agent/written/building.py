"""What the written scenarios are made of."""

from typing import Any

from tests.golden.agent.format import (
    Attempt,
    Component,
    Connect,
    Engine,
    Input,
    Preload,
    Prewarm,
    Scenario,
    Send,
    Signature,
)

PLAIN = Engine("plain")
PAIR = Engine("pair", capacity=2)
MODEL = Engine("model", accelerated=True, capacity=2, mixable=("adapter",), preload="torch")
TORCH = Preload("torch", memory_mib=150, start_s=0.1, import_s=5.0)
FIRST = Send(0.0, everything=True)
PREWARM_FIRST = Send(0.0, everything=True, hold_open=())


def scenario(
    name: str, *parts: Signature | Attempt | Component | Input, until_s: float, **changes: Any
) -> Scenario:
    """Returns a scenario with a connection from the start and three engines."""
    inputs = [one for one in parts if isinstance(one, Input)]
    given: dict[str, Any] = {"engines": (PLAIN, PAIR, MODEL), "preloads": (TORCH,)}
    return Scenario(
        name=name,
        signatures=tuple(one for one in parts if isinstance(one, Signature)),
        attempts=tuple(one for one in parts if isinstance(one, Attempt)),
        components=tuple(one for one in parts if isinstance(one, Component)),
        inputs=(Connect(0.0), *sorted(inputs, key=lambda one: one.t)),
        until_s=until_s,
        **(given | changes),
    )


def listed(t: float, *signatures: str) -> Send:
    return Send(t, hold_open=tuple(map(Prewarm, signatures)))


def signatures(*names: str, **facts: Any) -> tuple[Signature, ...]:
    return tuple(Signature(name, **{"engine": "plain", **facts}) for name in names)
