"""The requests of a router by their ids: what they are doing, and how they have ended."""
