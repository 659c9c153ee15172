"""Engines that run code of the user."""
