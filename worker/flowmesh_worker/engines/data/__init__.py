"""The engine ``data.sql``."""
