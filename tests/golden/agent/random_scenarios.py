"""Random scenarios: workers, work and mishaps of all sorts, each made by its seed alone."""

from random import Random
from typing import Any

from tests.golden.agent.format import (
    Attempt,
    Component,
    Connect,
    Disconnect,
    Engine,
    Fault,
    Input,
    Preload,
    Prewarm,
    Scenario,
    Send,
    Signature,
    Sigterm,
)

_LENGTH_S = 40.0
_LATE_S = 700.0
_FETCH_FAILURES = ("store", "missing-blob", "bad-input")
_RUN_FAILURES = ("engine", "out-of-memory", "bad-input", "crash")


def random_scenario(seed: int) -> Scenario:
    """Returns the scenario of a seed."""
    rng = Random(f"agent {seed}")
    devices = rng.choice((0, 0, 1, 2, 4))
    preloads = tuple(_preload(rng, i) for i in range(rng.randint(0, 2)))
    engines = tuple(_engine(rng, i, preloads) for i in range(rng.randint(1, 3)))
    components = tuple(_component(rng, i) for i in range(rng.randint(0, 5)))
    signatures = tuple(
        _signature(rng, i, engines, components, devices) for i in range(rng.randint(2, 6))
    )
    mixing = {e.name for e in engines if e.mixable}
    adapters = {s.name: s.engine in mixing for s in signatures}
    attempts = tuple(
        _attempt(rng, i, signatures, components, adapters) for i in range(rng.randint(6, 25))
    )
    return Scenario(
        name=f"Random world {seed} is compared",
        engines=engines,
        preloads=preloads,
        components=components,
        signatures=signatures,
        attempts=attempts,
        inputs=tuple(sorted(_inputs(rng, signatures, attempts), key=lambda one: one.t)),
        until_s=_LATE_S,
        memory_mib=1000,
        devices=devices,
        device_mib=1000 if devices else 0,
        grace_s=float(rng.choice((2, 6, 10, 30))),
        acknowledge_after_s=rng.choice((0.0, 0.05, 2.0, None)),
    )


def _s(rng: Random, least: float, most: float) -> float:
    return round(rng.uniform(least, most), 3)


def _often(rng: Random, probability: float) -> bool:
    return rng.random() < probability


def _preload(rng: Random, number: int) -> Preload:
    return Preload(
        name=f"p{number}",
        memory_mib=rng.choice((50, 150, 300)),
        start_s=_s(rng, 0.0, 0.3),
        import_s=_s(rng, 0.5, 8.0),
        failure=rng.choice(("", "", "", "", "", "import", "exit", "start")),
    )


def _engine(rng: Random, number: int, preloads: tuple[Preload, ...]) -> Engine:
    preload = rng.choice(preloads).name if preloads and _often(rng, 0.7) else ""
    return Engine(
        name=f"e{number}",
        accelerated=bool(preload) or _often(rng, 0.5),
        capacity=rng.choice((1, 1, 2, 4)),
        mixable=("adapter",) if _often(rng, 0.3) else (),
        preload=preload,
    )


def _component(rng: Random, number: int) -> Component:
    return Component(
        digest=f"m{number}",
        fetch_s=_s(rng, 0.2, 6.0),
        failure=rng.choice(_FETCH_FAILURES) if _often(rng, 0.1) else "",
        on_disk=_often(rng, 0.2),
    )


def _signature(
    rng: Random,
    number: int,
    engines: tuple[Engine, ...],
    components: tuple[Component, ...],
    devices: int,
) -> Signature:
    used = rng.sample(components, min(len(components), rng.choice((0, 1, 1, 2))))
    unlikely = rng.random()
    return Signature(
        name=f"s{number}",
        engine="unknown" if unlikely > 0.98 else rng.choice(engines).name,
        memory_mib=rng.choice((100, 200, 300, 400, 500, 700, 900, 1000)),
        devices=rng.randint(1, max(1, devices)),
        components=tuple(c.digest for c in used),
        start_s=_s(rng, 0.0, 0.2),
        start_fails=0.95 < unlikely < 0.98,
        load_s=_s(rng, 0.1, 6.0),
        load_failure=rng.choice(("engine", "crash")) if unlikely < 0.08 else "",
        close_s=20.0 if _often(rng, 0.05) else _s(rng, 0.0, 1.0),
    )


def _attempt(
    rng: Random,
    number: int,
    signatures: tuple[Signature, ...],
    components: tuple[Component, ...],
    adapters: dict[str, bool],
) -> Attempt:
    signature = rng.choice(signatures).name
    changes: dict[str, Any] = {}
    if components and adapters[signature] and _often(rng, 0.6):
        changes["adapter"] = rng.choice(components).digest
    if _often(rng, 0.4):
        changes |= {
            "fetch_s": _s(rng, 0.0, 4.0),
            "fetch_failure": rng.choice(_FETCH_FAILURES) if _often(rng, 0.15) else "",
            "preflight_failure": "out-of-memory" if _often(rng, 0.05) else "",
        }
    if _often(rng, 0.15):
        changes |= {
            "resume_s": _s(rng, 0.1, 2.0),
            "resume_at": _s(rng, 0.1, 0.9),
            "resume_spoiled": _often(rng, 0.3),
        }
    if _often(rng, 0.4):
        changes["progress"] = _fractions(rng, 5)
    if _often(rng, 0.25):
        changes |= {
            "checkpoints": _fractions(rng, 3),
            "checkpoint_store_s": _s(rng, 0.0, 3.0),
            "checkpoint_store_fails": _often(rng, 0.2),
        }
    if _often(rng, 0.5):
        changes |= {
            "outputs": rng.choice(("store", "store", "store", "missing")),
            "store_s": _s(rng, 0.0, 3.0),
            "store_failure": "store" if _often(rng, 0.1) else "",
            "keeps_files": _often(rng, 0.8),
        }
    if _often(rng, 0.15):
        changes["timeout_s"] = _s(rng, 1.0, 8.0)
    return Attempt(
        id=f"a{number}",
        signature=signature,
        priority=rng.choice((0, 0, 0, 1, 5)),
        isolate=_often(rng, 0.1),
        run_s=_s(rng, 0.2, 90.0 if _often(rng, 0.1) else 6.0),
        failure=rng.choice(_RUN_FAILURES) if _often(rng, 0.15) else "",
        kernel_oom=_often(rng, 0.04),
        cancel_s=None if _often(rng, 0.15) else _s(rng, 0.0, 2.0),
        lines=_fractions(rng, 2) if _often(rng, 0.1) else (),
        stop_s=_s(rng, 0.0, 2.0) if _often(rng, 0.5) else None,
        stop_checkpoint=_often(rng, 0.5),
        **changes,
    )


def _fractions(rng: Random, most: int) -> tuple[float, ...]:
    # Apart by so much that no two of an attempt are reached in one millisecond.
    hundredths = rng.sample(range(1, 100), rng.randint(1, most))
    return tuple(n / 100 for n in sorted(hundredths))


def _inputs(
    rng: Random, signatures: tuple[Signature, ...], attempts: tuple[Attempt, ...]
) -> list[Input]:
    ids = [a.id for a in attempts]
    lists = _often(rng, 0.7)
    inputs: list[Input] = [
        Connect(0.0),
        Send(0.0, everything=True, hold_open=_prewarms(rng, signatures) if lists else None),
    ]
    rest = list(ids)
    while rest:
        count = rng.randint(1, 4)
        inputs.append(Send(_s(rng, 0.001, _LENGTH_S), assign=tuple(rest[:count])))
        rest = rest[count:]
    for _ in range(rng.randint(0, 5)):
        inputs.append(Send(_s(rng, 1.0, _LENGTH_S), cancel=(rng.choice(ids),)))
    for _ in range(rng.randint(0, 3) if lists else 0):
        inputs.append(Send(_s(rng, 1.0, _LENGTH_S), hold_open=_prewarms(rng, signatures)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        kind = rng.choice(("crash", "oom-kill", "memory", "silence"))
        key = rng.choice([s.name for s in signatures])
        inputs.append(Fault(_s(rng, 1.0, _LENGTH_S), key, kind))
    if _often(rng, 0.3):
        begin_s = _s(rng, 1.0, _LENGTH_S)
        end_s = round(begin_s + _s(rng, 0.5, 10.0), 3)
        keep = tuple(i for i in ids if _often(rng, 0.7))
        inputs += [Disconnect(begin_s), Connect(end_s), Send(end_s, everything=True, keep=keep)]
    if _often(rng, 0.5):
        stop_s = _s(rng, 0.4 * _LENGTH_S, 1.5 * _LENGTH_S)
        inputs.append(Send(stop_s, drain=True) if _often(rng, 0.3) else Sigterm(stop_s))
        if _often(rng, 0.3):
            inputs.append(Sigterm(round(stop_s + _s(rng, 0.1, 5.0), 3)))
    return inputs


def _prewarms(rng: Random, signatures: tuple[Signature, ...]) -> tuple[Prewarm, ...]:
    chosen = rng.sample(signatures, rng.randint(0, min(4, len(signatures))))
    return tuple(
        Prewarm(
            signature.name,
            memory_mib=100 if _often(rng, 0.05) else 0,
            implementation=2 if _often(rng, 0.03) else 1,
        )
        for signature in chosen
    )
