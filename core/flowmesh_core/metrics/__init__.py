"""Counters of what the machine has done, for ``/metrics``.

The machine counts as it works. The control plane reads the counters when it is scraped, and stores
those that must survive a restart.
"""
