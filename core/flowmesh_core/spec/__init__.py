"""The models of every custom resource, and how a file with them is read.

The models here are the one source of ``crds/*.yaml``, of the editors' schema and of validation.
"""
