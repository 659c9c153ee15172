import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_core.errors import InvalidReferenceError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.sharing import issue, verify
from flowmesh_core.units import Digest

KEY = b"a master key of 32 random bytes."
CONTENT = digest_bytes(b"content")
SCOPES = st.sampled_from(["ns-a", "ns-b", "group-x", "all"])


@given(SCOPES, st.lists(SCOPES), st.binary())
@settings(deadline=None)
def test_a_reference_is_valid_in_its_scope_alone(
    scope: str, looked_up: list[str], data: bytes
) -> None:
    digest = digest_bytes(data)
    reference = issue(KEY, scope, digest)
    if scope in looked_up:
        assert verify(KEY, looked_up, reference) == digest
    else:
        with pytest.raises(InvalidReferenceError, match="not valid for this namespace"):
            verify(KEY, looked_up, reference)


def test_another_master_key_gives_another_reference() -> None:
    with pytest.raises(InvalidReferenceError):
        verify(b"another master key, also 32 byte", ["ns-a"], issue(KEY, "ns-a", CONTENT))


@given(st.integers(4, 4 + 64 + 1 + 31), st.sampled_from("0123456789abcdef."))
@settings(deadline=None)
def test_no_changed_reference_is_valid(position: int, character: str) -> None:
    reference = issue(KEY, "ns-a", CONTENT)
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
        "",
        issue(KEY, "ns-a", CONTENT).upper(),
        issue(KEY, "ns-a", CONTENT) + "\n",
        issue(KEY, "ns-a", CONTENT)[:-2],
        issue(KEY, "ns-a", CONTENT) + "00",
    ],
)
def test_a_digest_alone_or_another_form_is_no_reference(reference: str) -> None:
    with pytest.raises(InvalidReferenceError, match="is no reference; it looks like cas:"):
        verify(KEY, ["ns-a"], reference)


def test_references_are_issued_for_digests_with_a_long_key_only() -> None:
    with pytest.raises(InvalidReferenceError, match="is no digest"):
        issue(KEY, "ns-a", Digest("../etc"))
    with pytest.raises(InvalidReferenceError, match="the master key has 5 bytes; give at least 16"):
        issue(b"short", "ns-a", CONTENT)
