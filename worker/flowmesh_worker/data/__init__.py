"""Moves inputs, outputs and components of attempts between the store and the local disk."""
