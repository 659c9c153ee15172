"""A worker that lies in 1 of 20 is found, and nothing of its lies is found afterwards.

``make sampling`` runs a thousand seeds.
"""

from flowmesh_core.audit.drawing import SampleDraw
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_sim.sampling.figure import figure_of

SEEDS = range(12)


def test_the_liar_is_found_and_all_of_its_lies_are_withheld() -> None:
    figure = figure_of(SEEDS)
    assert figure.found >= len(SEEDS) - 1
    assert figure.lies > len(SEEDS)
    assert (figure.left, figure.accused) == (0, 0)


def test_the_share_of_drawn_actions_is_the_samples_and_another_key_draws_others() -> None:
    actions = [digest_bytes(b"%d" % n) for n in range(20_000)]
    first, second = SampleDraw(KeyRing.of(b"a" * 32)), SampleDraw(KeyRing.of(b"b" * 32))
    drawn = {a for a in actions if first.draws(a, 0.02)}
    assert 300 < len(drawn) < 500
    assert drawn == {a for a in actions if first.draws(a, 0.02)}
    assert len(drawn & {a for a in actions if second.draws(a, 0.02)}) < 30
    assert not any(first.draws(a, 0.0) for a in actions)
    assert all(first.draws(a, 1.0) for a in actions)
