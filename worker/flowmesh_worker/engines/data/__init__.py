"""Engines that work on data sets as a whole."""
