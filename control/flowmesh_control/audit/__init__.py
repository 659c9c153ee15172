"""Starts audits of ended runs and finds which of their actions can be executed again."""
