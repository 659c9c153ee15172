"""What users write: the models of every custom resource, and how a file is read.

The models here are the one source of ``crds/*.yaml``, of the editors' schema and of validation.
"""
