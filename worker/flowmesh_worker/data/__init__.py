"""Inputs, outputs and components of attempts, between the store and the disk."""
