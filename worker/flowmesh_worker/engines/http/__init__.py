"""Engines that send one HTTP request for each row: ``http.request`` and ``http.chat``."""
