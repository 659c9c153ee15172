"""Starts audits of finished runs and finds which of their actions can be made again."""
