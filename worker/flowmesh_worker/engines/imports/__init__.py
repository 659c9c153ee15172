"""Engines that import external content: ``dataset.import`` and ``source.resolve``."""
