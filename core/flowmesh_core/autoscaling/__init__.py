"""Decides how many workers each pool needs, and which engines to load before work arrives.

The control plane's capacity signal calls it, and the operator turns its backlogs into replicas. It
reads snapshots and remembers demand; it never places work.
"""
