import itertools

import pytest

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.errors import SpecError
from flowmesh_core.sharing import plan_scopes

RESEARCH = CachePolicy("research", Sharing.GROUP, "x", namespaces=("team-a", "team-b"))
LABELLED = CachePolicy("by-label", Sharing.ALL, labels={"tier": "open", "env": "dev"})


def test_without_a_policy_a_namespace_shares_with_no_other() -> None:
    plan = plan_scopes([RESEARCH, LABELLED], "team-c", {"tier": "open"})
    assert (plan.publish, plan.lookup, plan.private) == ("ns-team-c", ("ns-team-c",), "ns-team-c")


def test_members_of_a_group_publish_to_it_and_search_their_private_scope_first() -> None:
    plan = plan_scopes([RESEARCH], "team-b")
    assert (plan.publish, plan.lookup) == ("group-x", ("ns-team-b", "group-x"))
    assert (plan.private, plan.policy) == ("ns-team-b", "research")


def test_labels_select_namespaces_that_carry_all_of_them() -> None:
    plan = plan_scopes([LABELLED], "team-d", {"tier": "open", "env": "dev", "more": "x"})
    assert (plan.publish, plan.lookup) == ("all", ("ns-team-d", "all"))


def test_a_policy_without_a_selection_selects_no_namespace_and_a_star_selects_all() -> None:
    assert plan_scopes([CachePolicy("p", Sharing.ALL)], "team-a").publish == "ns-team-a"
    everybody = CachePolicy("p", Sharing.ALL, namespaces=("*",))
    assert plan_scopes([everybody], "team-a").publish == "all"


def test_the_scope_of_a_namespace_never_equals_that_of_a_group_or_all() -> None:
    tricky = ["all", "group-x", "x", "ns-x"]
    scopes = {plan_scopes([], n).publish for n in tricky}
    assert not scopes & {"all", "group-x", "group-all"}


def test_salt_and_time_to_live_come_with_the_policy() -> None:
    policy = CachePolicy("p", namespaces=("a",), salt="v2", ttl_s=60.0)
    plan = plan_scopes([policy], "a")
    assert (plan.publish, plan.salt, plan.ttl_s) == ("ns-a", "v2", 60.0)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            CachePolicy("z", namespaces=("team-a",)),
            "one publishes to group-x, the other to ns-team",
        ),
        (CachePolicy("z", Sharing.ALL, namespaces=("*",)), "the other to all"),
        (CachePolicy("z", Sharing.GROUP, "y", namespaces=("team-a",)), "the other to group-y"),
        (CachePolicy("z", Sharing.GROUP, "x", ("team-a",), salt="s"), "their salts differ"),
        (CachePolicy("z", Sharing.GROUP, "x", ("team-a",), ttl_s=1.0), "for different times"),
    ],
)
def test_two_policies_that_disagree_on_a_namespace_are_refused(
    other: CachePolicy, reason: str
) -> None:
    messages = set()
    for order in itertools.permutations([RESEARCH, other]):
        with pytest.raises(SpecError, match="'team-a' is selected by the policies 'rese") as caught:
            plan_scopes(order, "team-a")
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert reason in messages.pop()


def test_two_policies_that_agree_are_one() -> None:
    again = CachePolicy("again", Sharing.GROUP, "x", labels={"team": "a"})
    assert plan_scopes([RESEARCH, again], "team-a", {"team": "a"}).publish == "group-x"


@pytest.mark.parametrize(
    "policy",
    [
        CachePolicy("p", Sharing.GROUP, namespaces=("a",)),
        CachePolicy("p", Sharing.ALL, "x", namespaces=("a",)),
    ],
)
def test_a_group_name_is_allowed_only_with_the_scope_group(policy: CachePolicy) -> None:
    with pytest.raises(SpecError, match=r"FlowMeshCachePolicy p: spec\.group"):
        plan_scopes([policy], "a")


@pytest.mark.parametrize(
    ("policy", "trust"),
    [
        (CachePolicy("p", namespaces=("team-a",)), 0),
        (CachePolicy("p", namespaces=("team-a",), min_trust=3), 3),
        (CachePolicy("p", labels={"tier": "open"}, min_trust=2), 2),
        (RESEARCH, 1),
        (CachePolicy("p", Sharing.ALL, namespaces=("team-a",)), 1),
        (CachePolicy("p", Sharing.ALL, namespaces=("team-a",), min_trust=0), 0),
    ],
)
def test_a_shared_scope_requires_trust_unless_its_policy_sets_it(
    policy: CachePolicy, trust: int
) -> None:
    assert plan_scopes([policy], "team-a", {"tier": "open"}).min_trust == trust
    assert plan_scopes([], "team-a").min_trust == 0


def test_the_highest_trust_of_a_scopes_policies_applies_to_all_its_publishers() -> None:
    strict = CachePolicy("s", Sharing.GROUP, "x", namespaces=("team-c",), min_trust=3)
    for namespace in ("team-a", "team-c"):
        assert plan_scopes([RESEARCH, strict], namespace).min_trust == 3
