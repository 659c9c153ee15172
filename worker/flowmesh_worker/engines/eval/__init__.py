"""Engines that score rows: ``eval.*``."""
