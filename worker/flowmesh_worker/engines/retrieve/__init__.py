"""Engines that find rows."""
