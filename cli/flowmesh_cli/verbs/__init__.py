"""Implementations of the commands, called after their options are parsed."""
