"""Blobs of a bucket without its credentials: a worker asks the blob service for URLs (ADR 44)."""
