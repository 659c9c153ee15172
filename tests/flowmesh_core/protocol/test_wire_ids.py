"""Attempt ids as workers see them: only the worker that was given an attempt can name it."""

from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.protocol.wire_ids import WireIds, attempt_key, without_mac

KEY = attempt_key(b"k" * 32)
ID = f"ns-team-a/{'a' * 64}/3-17"


def ids(worker: str = "w1", pool: str = "gpu", key: bytes = KEY) -> WireIds:
    return WireIds(key, worker=worker, pool=pool)


def test_an_id_comes_back_to_the_worker_that_it_was_given_to_also_on_a_new_connection() -> None:
    given = ids().wire(ID)
    assert given.startswith(f"{ID}.")
    assert ids().bare(given) == ID


def test_no_other_worker_pool_or_key_verifies_an_id() -> None:
    given = ids().wire(ID)
    for other in (ids("w2"), ids(pool="low"), ids(key=attempt_key(b"x" * 32))):
        assert other.bare(given) is None
    assert ids("w", "1gpu").bare(ids("w1", "gpu").wire(ID)) is None


def test_what_was_acknowledged_is_forgotten_and_still_verifies() -> None:
    mine = ids()
    given = mine.wire(ID)
    assert mine.forget(ID) == given == mine.forget(ID)
    assert mine.bare(given) == ID


@given(st.text() | st.builds(lambda mac: f"{ID}.{mac}", st.text(max_size=40)))
def test_no_invented_id_verifies(invented: str) -> None:
    assert ids().bare(invented) is None


@given(st.integers(0, len(ID) + 32), st.characters(exclude_categories=["Cs"]))
def test_no_changed_id_verifies(place: int, character: str) -> None:
    given = ids().wire(ID)
    changed = f"{given[:place]}{character}{given[place + 1 :]}"
    assert ids().bare(changed) == (ID if changed == given else None)


def test_the_key_is_not_the_master_key() -> None:
    assert attempt_key(b"k" * 32) not in (b"k" * 32, attempt_key(b"l" * 32))


def test_logs_show_the_machines_id_with_a_mac_or_without() -> None:
    dotted = f"ns-team.a/{'a' * 64}/3-17"
    for name in (ID, dotted):
        assert without_mac(ids().wire(name)) == name == without_mac(name)
    assert without_mac("x") == "x"
