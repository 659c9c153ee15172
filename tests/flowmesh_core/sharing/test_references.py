import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.errors import InvalidReferenceError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.sharing import (
    REFERENCES_CONTEXT,
    DerivedKeys,
    KeyRing,
    Reference,
    issue,
    verify,
)
from flowmesh_core.units import Digest

SECRET = b"a master key of 32 random bytes."
OTHER_SECRET = b"another master key, also 32 byte"


def keys(*secrets: tuple[str, bytes]) -> DerivedKeys:
    """The keys of references, newest first."""
    return KeyRing(secrets).derive(REFERENCES_CONTEXT)


KEY = keys(("00", SECRET))
OTHER_KEY = keys(("00", OTHER_SECRET))
CONTENT = digest_bytes(b"content")
FORMER = f"cas:{CONTENT}.{'0' * 32}"
SCOPES = st.sampled_from(["ns-a", "ns-b", "group-x", "all"])
KINDS = st.sampled_from([k.value for k in PortKind])


@given(SCOPES, KINDS, st.lists(SCOPES), st.binary())
@settings(deadline=None)
def test_a_reference_is_valid_only_in_its_scope(
    scope: str, kind: str, looked_up: list[str], data: bytes
) -> None:
    digest = digest_bytes(data)
    reference = issue(KEY, scope, 0, kind, digest)
    if scope in looked_up:
        assert verify(KEY, dict.fromkeys(looked_up, 0), reference) == Reference(kind, digest)
    else:
        with pytest.raises(InvalidReferenceError, match="not valid for this namespace"):
            verify(KEY, dict.fromkeys(looked_up, 0), reference)


Issued = tuple[str, str, int, int]
ISSUED = st.tuples(KINDS, SCOPES, st.integers(0, 1), st.integers(0, 2))


@given(ISSUED, ISSUED, st.binary())
@settings(deadline=None)
def test_a_reference_is_valid_for_no_other_kind_scope_key_or_generation(
    issued: Issued, read: Issued, data: bytes
) -> None:
    """Whoever writes another kind before the same digest and MAC has no reference."""
    (kind, scope, key, generation) = issued
    (other_kind, other_scope, other_key, other_generation) = read
    rings = (KEY, OTHER_KEY)
    named = Reference(other_kind, digest_bytes(data))
    changed = issue(rings[key], scope, generation, kind, named.blob).replace(kind, other_kind, 1)
    if issued == read:
        assert verify(rings[other_key], {other_scope: other_generation}, changed) == named
    else:
        with pytest.raises(InvalidReferenceError, match="not valid for this namespace"):
            verify(rings[other_key], {other_scope: other_generation}, changed)


def test_every_key_of_the_ring_verifies_until_it_is_removed() -> None:
    old = keys(("00", SECRET))
    both = keys(("01", OTHER_SECRET), ("00", SECRET))
    new = keys(("01", OTHER_SECRET))
    reference = issue(old, "ns-a", 0, "model", CONTENT)
    assert verify(both, {"ns-a": 0}, reference).blob == CONTENT
    newer = issue(both, "ns-a", 0, "model", CONTENT)
    assert newer[len(f"cas:model:{CONTENT}.") :].startswith("01")
    for ring in (both, new):
        assert verify(ring, {"ns-a": 0}, newer).blob == CONTENT
    with pytest.raises(InvalidReferenceError, match="master key 00") as refused:
        verify(new, {"ns-a": 0}, reference)
    assert "fmesh outputs" in refused.value.remedy


@given(st.integers(4, 4 + 6 + 64 + 1 + 33), st.sampled_from("0123456789abcdef.:"))
@settings(deadline=None)
def test_no_changed_reference_is_valid(position: int, character: str) -> None:
    reference = issue(KEY, "ns-a", 0, "model", CONTENT)
    changed = reference[:position] + character + reference[position + 1 :]
    if changed != reference:
        with pytest.raises(InvalidReferenceError):
            verify(KEY, {"ns-a": 0, "group-x": 0}, changed)


@pytest.mark.parametrize(
    "reference",
    [
        CONTENT,
        f"cas:{CONTENT}",
        f"cas:{CONTENT}.",
        FORMER,
        f"cas:model:{CONTENT}",
        "",
        issue(KEY, "ns-a", 0, "model", CONTENT).upper(),
        issue(KEY, "ns-a", 0, "model", CONTENT).replace("model", "thing"),
        issue(KEY, "ns-a", 0, "model", CONTENT) + "\n",
        issue(KEY, "ns-a", 0, "model", CONTENT)[:-2],
        issue(KEY, "ns-a", 0, "model", CONTENT) + "00",
    ],
)
def test_a_bare_digest_or_another_form_is_not_a_reference(reference: str) -> None:
    with pytest.raises(InvalidReferenceError, match="is not a reference; it looks like cas:"):
        verify(KEY, {"ns-a": 0}, reference)


def test_references_are_issued_for_kinds_and_digests_only() -> None:
    with pytest.raises(InvalidReferenceError, match="is not a digest"):
        issue(KEY, "ns-a", 0, "blob", Digest("../etc"))
    with pytest.raises(InvalidReferenceError, match="'tree' is not a kind of content"):
        issue(KEY, "ns-a", 0, "tree", CONTENT)
