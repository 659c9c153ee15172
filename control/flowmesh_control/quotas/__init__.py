"""Quotas of namespaces, set by administrators; without any nothing is bounded."""
