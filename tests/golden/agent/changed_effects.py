"""Differences to the old agent that change single effects, which rules make equal.

A rule changes the effects of one side, or of both, where exactly what it is about differs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.golden.agent.format import Effect, EffectKind, Orphan, Scenario, Sigterm

Effects = list[Effect]
End = dict[str, Any]
"""An ``END`` by the names of its items."""
_END_FIELDS = ("t", "kind", "attempt", "how", "fetch", "load", "run", "put", "resumed", "log")
_CLOSE_S = 0.0021
"""Figures are rounded to milliseconds: sums of them differ by so much."""
_STOPPED = ("cancelled", "drained", "timeout")


@dataclass(frozen=True)
class Rule:
    """A difference.

    Attributes:
        why: what differs, and why that is wanted.
        explain: of the effects of the old agent and of the new one, makes those equal that it is
            about.
    """

    why: str
    explain: Callable[[Scenario, Effects, Effects], tuple[Effects, Effects]]


def _is(effect: Effect, *kinds: EffectKind) -> bool:
    return effect[1] in kinds


def _ends(old: Effects, new: Effects) -> Iterator[tuple[int, End, End]]:
    """Ends of the same attempts at the same time, with their index on the old side."""
    of_new = {(e[0], e[2]): e for e in new if _is(e, EffectKind.END)}
    for index, effect in enumerate(old):
        if _is(effect, EffectKind.END) and (effect[0], effect[2]) in of_new:
            other = of_new[effect[0], effect[2]]
            if other != effect:
                before = dict(zip(_END_FIELDS, effect, strict=True))
                after = dict(zip(_END_FIELDS, other, strict=True))
                yield index, before, after


def _with_end(old: Effects, index: int, end: End) -> None:
    old[index] = tuple(end[name] for name in _END_FIELDS)


def _near(one: float, other: float) -> bool:
    return abs(one - other) < _CLOSE_S


def _stored_in_vain(scenario: Scenario, old: Effects, new: Effects) -> tuple[Effects, Effects]:
    store_s = {a.id: a.store_s for a in scenario.attempts}
    for index, before, after in _ends(old, new):
        failed = before["how"] != "completed" and before["put"] == 0
        if failed and 0 < after["put"] < store_s[before["attempt"]] + _CLOSE_S:
            if before["how"] in _STOPPED and _near(before["run"], after["run"] + after["put"]):
                before["run"] = after["run"]
            _with_end(old, index, before | {"put": after["put"]})
    return old, new


def _fetched(scenario: Scenario, old: Effects, new: Effects) -> tuple[Effects, Effects]:
    resume_s = {a.id: a.resume_s or 0.0 for a in scenario.attempts}
    for index, before, after in _ends(old, new):
        more_s = after["fetch"] - before["fetch"]
        failed = before["how"] != "completed"
        in_vain = failed and before["fetch"] == before["run"] == before["load"] == 0
        if more_s > 0 and (in_vain or more_s < resume_s[before["attempt"]] + _CLOSE_S):
            _with_end(old, index, before | {"fetch": after["fetch"]})
    return old, new


def _flushed(scenario: Scenario, old: Effects, new: Effects) -> tuple[Effects, Effects]:
    store_s = {a.id: a.checkpoint_store_s for a in scenario.attempts}
    for index, before, after in _ends(old, new):
        more_s = before["run"] - after["run"]
        if before["how"] != "completed" and 0 < more_s < 2 * store_s[before["attempt"]] + _CLOSE_S:
            _with_end(old, index, before | {"run": after["run"]})
    return old, new


def _orphaned(scenario: Scenario, old: Effects, new: Effects) -> tuple[Effects, Effects]:
    times = {one.t for one in scenario.inputs if isinstance(one, Orphan)}

    def is_dropped(effect: Effect) -> bool:
        drained = _is(effect, EffectKind.END) and effect[3] == "drained"
        return effect[0] in times and (drained or _is(effect, EffectKind.CANCEL))

    return [effect for effect in old if not is_dropped(effect)], new


def _not_its_kill(scenario: Scenario, old: Effects, new: Effects) -> tuple[Effects, Effects]:
    killed = {a.id for a in scenario.attempts if a.kernel_oom}
    for index, before, after in _ends(old, new):
        was_blamed = before["how"] == "out-of-memory" and before["attempt"] not in killed
        if was_blamed and after["how"] == "engine":
            _with_end(old, index, before | {"how": after["how"]})
    return old, new


def _standby_awaited(scenario: Scenario, old: Effects, new: Effects) -> tuple[Effects, Effects]:
    start_s = {p.name: p.start_s for p in scenario.preloads}
    stops = [one.t for one in scenario.inputs if isinstance(one, Sigterm)]
    begun = [(e[0], start_s[e[2]]) for e in old if _is(e, EffectKind.STANDBY_START)]
    for t in stops:
        if any(begin_s <= t < begin_s + lasts_s for begin_s, lasts_s in begun) and old != new:
            return _ends_only_from(t, old), _ends_only_from(t, new)
    return old, new


def _ends_only_from(begin_s: float, effects: Effects) -> Effects:
    before = [e for e in effects if e[0] < begin_s]
    return before + [(begin_s, *e[1:4]) for e in effects[len(before) :] if _is(e, EffectKind.END)]


RULES: dict[str, Rule] = {
    "storing counts where it fails": Rule(
        "The seconds of storing are reported of attempts that fail or are stopped while they "
        "store. The old agent reported 0, or counted them as running.",
        _stored_in_vain,
    ),
    "fetching counts where it fails, and for checkpoints": Rule(
        "The seconds of fetching are reported of attempts that fail or are stopped while they "
        "fetch, and include those of a checkpoint. The old agent reported 0, and left those out.",
        _fetched,
    ),
    "storing a checkpoint does not count as running": Rule(
        "An attempt whose host has ended it does not run while its checkpoint is stored. The old "
        "agent counted that where the host had reported no figure.",
        _flushed,
    ),
    "an orphan reports nothing": Rule(
        "A worker that gives up connecting ends its hosts. The old agent cancelled its attempts "
        "before, and recorded ends that went nowhere.",
        _orphaned,
    ),
    "a kill of the kernel has one victim": Rule(
        "A kill explains one failure. In the old agent each open host counted for itself: the next "
        "failure of each became out-of-memory.",
        _not_its_kill,
    ),
    "a draining worker does not wait for standby hosts": Rule(
        "Attempts are handed back at once. The old agent waited before for the process of a "
        "standby host that was being started, only to kill it. What comes after that has other "
        "times; the ends are compared.",
        _standby_awaited,
    ),
}


def explained(
    scenario: Scenario, old: Effects, new: Effects, without: str = ""
) -> tuple[Effects, Effects]:
    """Returns the effects of both agents after all rules but one."""
    for name, rule in RULES.items():
        if name != without:
            old, new = rule.explain(scenario, list(old), list(new))
    return old, new
