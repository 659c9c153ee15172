"""Decides about online requests: batches, order, shares of a latency target, capacity.

All functions are pure: the clock, the randomness and the measured profiles are arguments. The
router, a worker's hub and the simulator call the same ones. A worker imports ``profile`` and
``queue`` alone.
"""
