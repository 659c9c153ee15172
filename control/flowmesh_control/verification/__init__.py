"""Verifies outputs of ended runs: bytes, identities and seals, down to what was brought in."""
