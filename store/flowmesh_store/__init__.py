"""Blob, record and dataset storage on memory, filesystem and S3."""
