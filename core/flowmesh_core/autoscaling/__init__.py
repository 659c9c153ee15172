"""Decides how many workers each pool needs, and which engines to load before work arrives.

The control plane computes the capacity signal here, and the operator turns the backlogs into
replicas. This package reads snapshots and demand; it never places work.
"""
