"""Engines that ask servers of the user's choice, one request a row."""
