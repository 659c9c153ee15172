"""The version of the control API, which every answer names in a header.

The number before the point is that of the paths, ``/v1``. The number after it is raised by each
release that adds an operation, a parameter or a field, so that a client can say what is missing.
"""

API_VERSION = "1.0"
VERSION_HEADER = "Flowmesh-Api"
