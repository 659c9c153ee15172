"""Which quota applies to a namespace, and what the machine is told of it."""

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_core.machine.events import NamespaceLimits, NamespaceLimitsChanged, WeightsChanged

LABELS = {"team-a": {"tier": "gold"}, "team-b": {}, "team-c": {"tier": "gold"}}


Posted = WeightsChanged | NamespaceLimitsChanged


def given(kind: type[Posted] = WeightsChanged) -> tuple[Quotas, list[Posted]]:
    """No quotas yet, and the events of a kind that they post."""
    posted = list[Posted]()

    async def post(event: Posted) -> None:
        if isinstance(event, kind):
            posted.append(event)

    return Quotas(post), posted


async def test_without_a_quota_nothing_is_bounded_and_nothing_is_posted() -> None:
    quotas, posted = given()
    assert quotas.of("team-a") is None
    await quotas.replace_all([], LABELS)
    assert quotas.of("team-a") is None
    assert posted == []


async def test_a_quota_by_name_takes_precedence_over_a_label_and_a_label_over_a_star() -> None:
    quotas, posted = given()
    every = Quota(name="a-every", namespaces=("*",))
    gold = Quota(name="b-gold", labels={"tier": "gold"}, weight=2.0)
    own = Quota(name="c-own", namespaces=("team-a",), weight=3.0)
    await quotas.replace_all([every, gold, own], LABELS)
    found = {namespace: quotas.of(namespace) for namespace in LABELS}
    assert found == {"team-a": own, "team-b": every, "team-c": gold}
    assert posted == [WeightsChanged({"team-a": 3.0, "team-c": 2.0})]


async def test_a_label_that_changes_selects_another_quota() -> None:
    quotas, posted = given()
    gold = Quota(name="gold", labels={"tier": "gold"}, weight=2.0)
    await quotas.replace_all([gold], LABELS)
    await quotas.replace_all([gold], LABELS)
    await quotas.replace_all([gold], {**LABELS, "team-a": {}})
    assert quotas.of("team-a") is None
    assert posted == [
        WeightsChanged({"team-a": 2.0, "team-c": 2.0}),
        WeightsChanged({"team-c": 2.0}),
    ]


async def test_the_machine_gets_the_limits_on_attempts_once_and_again_when_they_change() -> None:
    quotas, posted = given(NamespaceLimitsChanged)
    gold = Quota(
        name="gold", labels={"tier": "gold"}, user_code_calls=2, nanousd_per_day=7, workers=3
    )
    await quotas.replace_all([gold], LABELS)
    await quotas.replace_all([gold], LABELS)
    await quotas.set_full({"team-c": "it is full"})
    await quotas.replace_all([], LABELS)
    limits = NamespaceLimits(2, 7, workers=3)
    assert posted == [
        NamespaceLimitsChanged({"team-a": limits, "team-c": limits}),
        NamespaceLimitsChanged(
            {"team-a": limits, "team-c": NamespaceLimits(2, 7, "it is full", workers=3)}
        ),
        NamespaceLimitsChanged({}),
    ]


async def test_no_number_of_workers_is_no_limit_of_the_machine() -> None:
    quotas, posted = given(NamespaceLimitsChanged)
    await quotas.replace_all([Quota(name="gold", labels={"tier": "gold"})], LABELS)
    (event,) = posted
    assert {limits.workers for limits in event.limits.values()} == {None}
    await quotas.replace_all([Quota(name="gold", labels={"tier": "gold"}, workers=0)], LABELS)
    assert {limits.workers for limits in posted[-1].limits.values()} == {0}
