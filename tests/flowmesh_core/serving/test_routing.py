"""A call goes to the replica with the least load for its size that answers its path."""

from flowmesh_core.serving.routing import Candidate, choose

CHAT, OTHER = ("/v1/chat/completions",), ("/v1/embeddings",)


def test_the_least_loaded_replica_for_its_size_is_chosen() -> None:
    large = Candidate("large", CHAT, 64, reported=20)
    small = Candidate("small", CHAT, 4, reported=2)
    assert choose([small, large], CHAT[0]) is large


def test_calls_sent_since_the_last_report_count() -> None:
    one, two = Candidate("one", CHAT, 2), Candidate("two", CHAT, 2)
    chosen = []
    for _ in range(4):
        found = choose([one, two], CHAT[0])
        assert found is not None
        found.own += 1
        chosen.append(found.replica_id)
    assert chosen == ["one", "two", "one", "two"]


def test_own_calls_in_a_report_are_not_counted_twice() -> None:
    own = Candidate("own", CHAT, 2, reported=2, own_reported=2, own=1)
    others = Candidate("others", CHAT, 2, reported=2, own_reported=0)
    assert (own.load, others.load) == (0.5, 1.0)


def test_a_replica_that_was_tried_or_answers_other_paths_is_not_chosen() -> None:
    one, two = Candidate("one", CHAT, 2), Candidate("two", OTHER, 2)
    assert choose([one, two], CHAT[0], tried=("one",)) is None
    assert choose([one, two], OTHER[0]) is two
    assert choose([], CHAT[0]) is None
