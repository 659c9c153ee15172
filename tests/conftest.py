"""Settings of all tests: on a shared machine one example may take long without being wrong."""

from hypothesis import settings

settings.register_profile("flowmesh", deadline=None)
settings.load_profile("flowmesh")
