"""Audits: results are made again and compared; what does not repeat is quarantined. See ADR 8."""
