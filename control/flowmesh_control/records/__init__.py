"""The records that the control plane writes, one module per kind.

``keys`` has the key of each; docs/architecture.md says what is written when.
"""
