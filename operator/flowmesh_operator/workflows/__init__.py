"""Workflow objects and their runs: what is missing on either side is done here."""
