"""Engines that bring content in from outside."""
