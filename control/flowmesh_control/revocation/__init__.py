"""Revocation: content that nothing may use any more, and the deletion of what was made from it."""
