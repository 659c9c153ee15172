"""Decisions about services: where replicas are."""
