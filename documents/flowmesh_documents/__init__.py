"""Reads workflow files: text becomes values that know their line and column.

One reader for ``fmesh``, the control plane and the Python client. It knows nothing of what the
values mean.
"""
