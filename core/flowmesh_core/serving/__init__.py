"""Decisions about services: where replicas are, which gets a call, which call runs next."""
