"""The control API: JSON over HTTP for ``fmesh``, the operator and people with curl."""
