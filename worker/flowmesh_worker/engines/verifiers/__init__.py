"""Verifiers: programs that judge completions, used as rewards and as scores."""
