"""Simulates workers, stores and faults in virtual time around the shipped core and scheduler."""
