"""Simulated workers: the real worker agent around modelled hosts, disks and connections."""
