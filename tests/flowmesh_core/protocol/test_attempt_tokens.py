"""Attempt tokens: what they say, and what voids them."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.protocol.attempt_tokens import (
    AGE_MAX_S,
    CONTEXT,
    TOKEN_CHARS_MAX,
    AttemptTokens,
    TokenHolder,
)
from flowmesh_core.protocol.validation import NAMES_BYTES_MAX
from flowmesh_core.sharing.key_ring import KeyRing

OLD, NEW = ("00", b"o" * 32), ("01", b"n" * 32)
ID = f"ns-a/{'a' * 64}/3-7"
HOLDER = TokenHolder("gpu", "gpu-1", "process")
NOW_S = 1_000_000.0


def tokens(*secrets: tuple[str, bytes]) -> AttemptTokens:
    return AttemptTokens(KeyRing(secrets or (OLD,)).derive(CONTEXT))


def token(made: AttemptTokens, holder: TokenHolder = HOLDER, attempt_id: str = ID) -> str:
    scopes = ("ns-a", "group-x")
    return made.issue(attempt_id, holder, generation=4, read_scopes=scopes, issued_s=NOW_S + 0.7)


def test_a_token_contains_its_attempt_and_its_permissions() -> None:
    grant = tokens().verify(token(tokens()), NOW_S)
    assert grant is not None
    assert (grant.version, grant.attempt_id, grant.generation) == (2, ID, 4)
    assert TokenHolder(grant.pool, grant.worker, grant.incarnation) == HOLDER
    assert (grant.issued_s, grant.write_scope) == (1_000_000, "ns-a")
    assert grant.read_scopes == ("ns-a", "group-x")


def test_all_keys_of_the_ring_verify_and_the_newest_issues() -> None:
    before, after = tokens(OLD), tokens(NEW, OLD)
    assert after.verify(token(before), NOW_S) is not None
    assert before.verify(token(after), NOW_S) is None
    assert tokens(NEW).verify(token(after), NOW_S) is not None
    assert tokens(NEW).verify(token(before), NOW_S) is None


@pytest.mark.parametrize(("passed_s", "valid"), [(-3600, False), (0, True), (AGE_MAX_S + 1, False)])
def test_a_token_expires(passed_s: float, valid: bool) -> None:
    assert (tokens().verify(token(tokens()), NOW_S + passed_s) is not None) is valid


@given(st.data())
def test_no_changed_token_verifies(data: st.DataObject) -> None:
    plain = bytearray(base64.urlsafe_b64decode(token(tokens())))
    at = data.draw(st.integers(0, len(plain) - 1))
    plain[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(plain)))
    for changed in (bytes(plain), bytes(plain[:cut])):
        assert tokens().verify(base64.urlsafe_b64encode(changed).decode(), NOW_S) is None


@given(st.text(max_size=2000))
def test_no_text_makes_verification_raise(text: str) -> None:
    assert tokens().verify(text, NOW_S) is None


def test_the_longest_token_is_a_kilobyte() -> None:
    scope = f"group-{'g' * 63}"
    attempt_id = f"{scope}/{'a' * 64}/{2**63 - 1}-{2**63 - 1}"
    holder = TokenHolder("p", "n" * (NAMES_BYTES_MAX - 33), "i" * 32)
    longest = tokens().issue(
        attempt_id,
        holder,
        generation=2**63 - 1,
        read_scopes=(f"ns-{'n' * 63}", scope),
        issued_s=NOW_S,
    )
    assert TOKEN_CHARS_MAX - 200 < len(longest) <= TOKEN_CHARS_MAX
    assert tokens().verify(longest, NOW_S) is not None


def test_a_token_of_a_prewarm_entry_only_reads() -> None:
    made = tokens(NEW)
    grant = made.verify(made.issue_reading(HOLDER, read_scopes=("ns-a",), issued_s=NOW_S), NOW_S)
    assert grant is not None
    assert (grant.attempt_id, grant.write_scope, grant.readable) == ("", "", ("ns-a",))
