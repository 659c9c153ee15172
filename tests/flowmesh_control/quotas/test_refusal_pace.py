"""The pace of refusals, by a clock that the test sets."""

from flowmesh_control.quotas.refusal_pace import DELAY_MAX_S, REFUSALS_PER_S, RefusalPace


class Clock:
    """A time that the test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def given() -> tuple[RefusalPace, Clock]:
    clock = Clock()
    return RefusalPace(clock), clock


def test_the_refusals_of_a_second_are_sent_at_once_and_further_ones_at_the_rate() -> None:
    pace, _ = given()
    delays_s = [pace.delay_s("a") for _ in range(150)]
    assert not any(delays_s[:50])
    assert [round(s * REFUSALS_PER_S) for s in delays_s[50:]] == list(range(1, 101))


def test_a_client_that_stops_for_a_second_is_refused_at_once_again() -> None:
    pace, clock = given()
    last_s = [pace.delay_s("a") for _ in range(150)][-1]
    clock.now_s += last_s + 1.0
    assert not any(pace.delay_s("a") for _ in range(49))


def test_another_client_does_not_wait() -> None:
    pace, _ = given()
    for _ in range(10_000):
        pace.delay_s("a")
    assert pace.delay_s("b") == 0.0


def test_no_refusal_waits_longer_than_the_longest_delay() -> None:
    pace, clock = given()
    for _ in range(10_000):
        pace.delay_s("a")
    assert pace.delay_s("a") == DELAY_MAX_S
    clock.now_s += DELAY_MAX_S + 1.1
    assert pace.delay_s("a") == 0.0


def test_clients_that_came_once_are_forgotten() -> None:
    pace, clock = given()
    for number in range(25_000):
        clock.now_s += 0.01
        pace.delay_s(f"client-{number}")
    assert len(pace._next_s) <= 10_000
