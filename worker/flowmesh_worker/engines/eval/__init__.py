"""Engines that score rows."""
