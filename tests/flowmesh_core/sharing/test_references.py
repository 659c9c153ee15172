import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.errors import InvalidReferenceError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.sharing import Reference, former_digest, issue, read_reference, verify
from flowmesh_core.units import Digest

KEY = b"a master key of 32 random bytes."
OTHER_KEY = b"another master key, also 32 byte"
CONTENT = digest_bytes(b"content")
FORMER = f"cas:{CONTENT}.{'0' * 32}"
SCOPES = st.sampled_from(["ns-a", "ns-b", "group-x", "all"])
KINDS = st.sampled_from([k.value for k in PortKind])
KEYS = st.sampled_from([KEY, OTHER_KEY])


@given(SCOPES, KINDS, st.lists(SCOPES), st.binary())
@settings(deadline=None)
def test_a_reference_is_valid_in_its_scope_alone(
    scope: str, kind: str, looked_up: list[str], data: bytes
) -> None:
    digest = digest_bytes(data)
    reference = issue(KEY, scope, kind, digest)
    if scope in looked_up:
        assert verify(KEY, looked_up, reference) == Reference(kind, digest)
    else:
        with pytest.raises(InvalidReferenceError, match="not valid for this namespace"):
            verify(KEY, looked_up, reference)


@given(st.tuples(KINDS, SCOPES, KEYS), st.tuples(KINDS, SCOPES, KEYS), st.binary())
@settings(deadline=None)
def test_a_reference_is_valid_for_no_other_kind_scope_or_key(
    issued: tuple[str, str, bytes], read: tuple[str, str, bytes], data: bytes
) -> None:
    """Whoever writes another kind before the same digest and MAC has no reference."""
    (kind, scope, key), (other_kind, other_scope, other_key) = issued, read
    named = Reference(other_kind, digest_bytes(data))
    changed = issue(key, scope, kind, named.digest).replace(kind, other_kind, 1)
    if issued == read:
        assert verify(other_key, [other_scope], changed) == named
    else:
        with pytest.raises(InvalidReferenceError, match="not valid for this namespace"):
            verify(other_key, [other_scope], changed)


@given(st.integers(4, 4 + 6 + 64 + 1 + 33), st.sampled_from("0123456789abcdef.:"))
@settings(deadline=None)
def test_no_changed_reference_is_valid(position: int, character: str) -> None:
    reference = issue(KEY, "ns-a", "model", CONTENT)
    changed = reference[:position] + character + reference[position + 1 :]
    if changed != reference:
        with pytest.raises(InvalidReferenceError):
            verify(KEY, ["ns-a", "group-x"], changed)


@pytest.mark.parametrize(
    "reference",
    [
        CONTENT,
        f"cas:{CONTENT}",
        f"cas:{CONTENT}.",
        f"cas:model:{CONTENT}",
        "",
        issue(KEY, "ns-a", "model", CONTENT).upper(),
        issue(KEY, "ns-a", "model", CONTENT).replace("model", "thing"),
        issue(KEY, "ns-a", "model", CONTENT) + "\n",
        issue(KEY, "ns-a", "model", CONTENT)[:-2],
        issue(KEY, "ns-a", "model", CONTENT) + "00",
    ],
)
def test_a_digest_alone_or_another_form_is_no_reference(reference: str) -> None:
    with pytest.raises(InvalidReferenceError, match="is no reference; it looks like cas:"):
        verify(KEY, ["ns-a"], reference)


def test_a_reference_without_a_kind_is_refused_with_the_way_to_a_new_one() -> None:
    for read in (read_reference, lambda text: verify(KEY, ["ns-a"], text)):
        with pytest.raises(InvalidReferenceError, match="made by an older release") as refused:
            read(FORMER)
        assert refused.value.remedy == "take a new one from `fmesh outputs`, or upload again"
    assert former_digest(FORMER) == CONTENT
    assert former_digest(issue(KEY, "ns-a", "model", CONTENT)) is None


def test_references_are_issued_for_kinds_and_digests_with_a_long_key_only() -> None:
    with pytest.raises(InvalidReferenceError, match="is not a digest"):
        issue(KEY, "ns-a", "blob", Digest("../etc"))
    with pytest.raises(InvalidReferenceError, match="'tree' is not a kind of content"):
        issue(KEY, "ns-a", "tree", CONTENT)
    with pytest.raises(InvalidReferenceError, match="the master key has 5 bytes; give at least 16"):
        issue(b"short", "ns-a", "blob", CONTENT)
