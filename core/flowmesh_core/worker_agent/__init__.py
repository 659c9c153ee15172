"""Decides what one worker does: which attempts it runs where, what it loads, evicts and reports.

The worker process and the simulator both run this machine. It does no I/O and reads no clock.
"""
