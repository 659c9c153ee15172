"""Engines that import and merge models: ``model.import`` and ``model.merge``."""
