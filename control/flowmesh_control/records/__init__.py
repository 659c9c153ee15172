"""What the control plane makes durable, one module per kind of record.

``keys`` names every key; see docs/architecture.md for what is written when.
"""
