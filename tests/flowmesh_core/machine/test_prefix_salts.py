"""Salts of prefix caches: secret, one for each namespace, shared only by policy."""

from flowmesh_api.v1.enums import PrefixCache, Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.machine.dispatch import cache_salt_scope
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.prefix_salts import PrefixSalts
from flowmesh_core.sharing.scopes import plan_scopes


def salt(namespace: str, prefix_cache: PrefixCache, salts: PrefixSalts) -> str:
    policy = CachePolicy("p", Sharing.GROUP, "g", ("a", "b"), prefix_cache=prefix_cache)
    scopes = plan_scopes([policy], namespace)
    return salts(cache_salt_scope(scopes, scopes.publish))


def test_members_of_a_group_have_separate_prefix_caches_unless_the_policy_shares_them() -> None:
    salts = PrefixSalts(KeyRing.of(b"k" * 32))
    own = [salt(n, PrefixCache.PRIVATE, salts) for n in ("a", "b")]
    assert own[0] != own[1]
    assert own[0] == salt("a", PrefixCache.PRIVATE, salts)
    shared = {salt(n, PrefixCache.SHARED, salts) for n in ("a", "b")}
    assert len(shared) == 1
    assert not shared & set(own)
    assert [len(bytes.fromhex(s)) for s in own] == [16, 16]


def test_a_salt_cannot_be_derived_without_the_key() -> None:
    one, other = PrefixSalts(KeyRing.of(b"k" * 32)), PrefixSalts(KeyRing.of(b"x" * 32))
    assert one("ns-a") != other("ns-a")
    assert "ns-a" not in one("ns-a")
