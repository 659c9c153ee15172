"""Audits: results are reproduced and compared, and what differs is quarantined (ADR 8)."""
