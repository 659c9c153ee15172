"""Judging completions by program: what training takes as rewards and evaluation as scores."""
