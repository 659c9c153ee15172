"""Decides how many workers each pool needs, and which engines to load before work arrives.

The capacity signal of the control plane calls it; the operator turns its backlogs into replicas. It
reads snapshots and remembers demand; it never places work.
"""
