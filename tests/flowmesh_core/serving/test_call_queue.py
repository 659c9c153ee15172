"""The calls of one replica: never more than may run or wait, and the earliest deadline first."""

from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from flowmesh_core.serving.queue.call_queue import CallAdmission, CallQueue


def test_the_earliest_deadline_runs_next_and_equal_ones_in_order() -> None:
    queue = CallQueue(1)
    assert queue.add("first", 9.0) is CallAdmission.RUNS
    assert queue.add("late", 5.0) is CallAdmission.WAITS
    assert queue.add("early", 3.0) is CallAdmission.WAITS
    assert queue.add("more", 1.0) is CallAdmission.FULL
    assert queue.take() is None
    assert queue.remove("first")
    assert queue.take() == "early"
    assert queue.remove("early")
    assert queue.add("equal", 5.0) is CallAdmission.WAITS  # others wait, so it does not overtake
    assert queue.take() == "late"


def test_a_waiting_call_that_is_not_wanted_leaves_its_place() -> None:
    queue = CallQueue(1)
    for name in ("a", "b", "c"):
        queue.add(name, 1.0)
    assert queue.add("d", 1.0) is CallAdmission.FULL
    assert not queue.remove("b")
    assert queue.add("d", 1.0) is CallAdmission.WAITS


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=80))
def test_bounds_hold_and_no_call_waits_beside_a_free_place(
    calls_max: int, events: list[tuple[int, int]]
) -> None:
    queue, waiting, count = CallQueue(calls_max), dict[str, float](), 0
    for kind, number in events:
        if kind < 2:
            count += 1
            admission = queue.add(str(count), float(number))
            if admission is CallAdmission.WAITS:
                waiting[str(count)] = float(number)
            elif admission is CallAdmission.FULL:
                assert len(waiting) == queue.queued_max
        else:
            names = [*queue.running, *waiting]
            if names:
                name = names[number % len(names)]
                assert queue.remove(name) == (name not in waiting)
                waiting.pop(name, None)
        while (following := queue.take()) is not None:
            assert waiting.pop(following) <= min(waiting.values(), default=10.0)
        assert len(queue.running) <= calls_max
        assert queue.queued == len(waiting) <= 2 * calls_max
        assert not waiting or len(queue.running) == calls_max


def test_a_tenant_with_fewer_calls_takes_the_last_place_of_the_tenant_with_most() -> None:
    queue = CallQueue(1)
    for call_id in ("a1", "a2", "a3"):
        queue.add(call_id, 9.0, "a")
    assert queue.add("b0", 9.0, "b") is CallAdmission.WAITS
    assert queue.add("b1", 9.0, "b") is CallAdmission.FULL
    assert queue.displaced_by("a") is None
    assert queue.displaced_by("b") == "a3"
    queue.remove("a3")
    assert queue.add("b1", 9.0, "b") is CallAdmission.WAITS
    assert queue.displaced_by("b") is None  # two each; a swap would change nothing
    assert queue.displaced_by("c") == "b1"


def test_a_tenant_with_fewer_calls_has_a_place_and_no_other_call_is_refused_for_it() -> None:
    queue = CallQueue(2)
    admissions = [queue.add(f"a{n}", 9.0, "a") for n in range(7)]
    assert admissions == [*[CallAdmission.RUNS] * 2, *[CallAdmission.WAITS] * 4, CallAdmission.FULL]
    assert queue.add("b0", 9.0, "b") is CallAdmission.WAITS
    assert queue.add("b1", 9.0, "b") is CallAdmission.WAITS
    assert queue.add("b2", 9.0, "b") is CallAdmission.FULL  # half as many more, and no further one
    assert queue.displaced_by("b") == "a5"
    queue.remove("a0")
    assert queue.take() == "a2"
    assert queue.add("a7", 9.0, "a") is CallAdmission.FULL  # the others wait beyond its places


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=80))
def test_a_call_that_displaces_another_is_admitted(events: list[tuple[str, int]]) -> None:
    queue, calls = CallQueue(2), []
    for number, (tenant, at) in enumerate(events):
        call_id = f"{tenant}{number}"
        if at < 2 and calls:
            queue.remove(calls.pop(at % len(calls)))
            queue.take()
        elif queue.add(call_id, 9.0, tenant) is not CallAdmission.FULL:
            calls.append(call_id)
        elif (displaced := queue.displaced_by(tenant)) is not None:
            queue.remove(displaced)
            calls.remove(displaced)
            assert queue.add(call_id, 9.0, tenant) is CallAdmission.WAITS
            calls.append(call_id)


def test_a_call_that_runs_is_never_displaced() -> None:
    queue = CallQueue(2)
    for call_id in ("a1", "a2"):
        queue.add(call_id, 9.0, "a")
    for number in range(4):
        queue.add(f"b{number}", 9.0, "b")
    assert queue.displaced_by("c") == "b3"
    assert queue.displaced_by("a") == "b3"


def test_of_one_tenant_at_one_service_the_highest_priority_begins_first() -> None:
    queue = CallQueue(3)
    for name in ("x", "y", "z"):
        queue.add(name, 9.0)
    queue.add("low", 1.0, "a", "s", -1)
    queue.add("normal", 2.0, "a", "s")
    queue.add("late high", 4.0, "a", "s", 1)
    queue.add("high", 3.0, "a", "s", 1)
    queue.add("other service", 2.5, "a", "t", -1)
    queue.add("other tenant", 1.5, "b", "s", -1)
    began = []
    for name in ("x", "y", "z", "high", "other tenant", "late high"):
        queue.remove(name)
        began.append(queue.take())
    assert began == [
        "high",  # in the turn of `low`
        "other tenant",
        "late high",
        "other service",
        "normal",
        "low",
    ]


def test_a_full_queue_refuses_the_lowest_priority_of_the_tenant_and_of_it_the_newest() -> None:
    queue = CallQueue(2)
    for name in ("x", "y"):
        queue.add(name, 9.0)
    for number, priority in enumerate((0, -1, -1, 1)):
        queue.add(f"a{number}", 1.0 + number, "a", "s", priority)
    assert queue.add("more", 9.0, "a", "s") is CallAdmission.FULL
    assert queue.displaced_by("a", "s", -1) is None
    assert queue.displaced_by("a", "t", 1) is None
    assert queue.displaced_by("a", "s", 0) == "a2"
    queue.replace("a2", "more", 9.0, "a", "s")
    assert queue.displaced_by("a", "s", 1) == "a1"
    queue.replace("a1", "high", 9.0, "a", "s", 1)
    assert queue.displaced_by("a", "s", 1) == "more"
    assert queue.queued == 4


@dataclass
class Played:
    """A queue, and whose calls have begun and been refused in it."""

    queue: CallQueue
    running: list[str] = field(default_factory=list)
    waiting: dict[str, tuple[int, float, int]] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)

    def add(self, group: str, deadline_s: float, priority: int, number: int) -> None:
        call_id, ordered_by = f"{group} {number}", (group[0], group[1], priority)
        admission = self.queue.add(call_id, deadline_s, *ordered_by)
        if admission is CallAdmission.RUNS:
            self.begin(call_id)
            return
        if admission is CallAdmission.FULL:
            displaced = self.queue.displaced_by(*ordered_by)
            if displaced is not None:
                self.queue.replace(displaced, call_id, deadline_s, *ordered_by)
                del self.waiting[displaced]
            self.log.append(("refused", (displaced or call_id)[:2]))
            if displaced is None:
                return
        self.waiting[call_id] = -priority, deadline_s, number

    def begin(self, call_id: str) -> None:
        self.running.append(call_id)
        self.log.append(("begins", call_id[:2]))

    def end(self, number: int) -> None:
        if not self.running:
            return
        self.queue.remove(self.running.pop(number % len(self.running)))
        while (call_id := self.queue.take()) is not None:
            order = self.waiting.pop(call_id)
            own = [o for c, o in self.waiting.items() if c[:2] == call_id[:2]]
            assert order == min([order, *own])
            self.begin(call_id)


_LATER_FIRST = [("as", 0, 0)] * 4 + [("bs", 0, 0)]
_ENDS = [("", 0, 0)] * 6


@example(3, [*_LATER_FIRST, ("as", 0, 1), *_ENDS])
@example(3, [*_LATER_FIRST, ("as", 0, -1), *_ENDS])
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from(("as", "at", "bs", "ct", "")), st.integers(0, 6), st.integers(-1, 1)
        ),
        max_size=80,
    ),
)
def test_calls_of_others_begin_and_are_refused_as_without_priorities(
    calls_max: int, events: list[tuple[str, int, int]]
) -> None:
    with_priorities, without = Played(CallQueue(calls_max)), Played(CallQueue(calls_max))
    for number, (group, at, priority) in enumerate(events):
        if group:
            with_priorities.add(group, float(at), priority, number)
            without.add(group, float(at), 0, number)
        else:
            with_priorities.end(at)
            without.end(at)
        assert with_priorities.log == without.log
        assert with_priorities.queue.queued == len(with_priorities.waiting)
        assert with_priorities.queue.queued == without.queue.queued
