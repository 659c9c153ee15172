"""The worker agent: decides which attempts a worker runs, and what it loads, closes and reports.

The worker process and the simulator both run it. It does no I/O and reads no clock.
"""
