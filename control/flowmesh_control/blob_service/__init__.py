"""The blob service: gives workers of a cluster URLs for the blobs that their attempts may use.

It has the bucket's credentials and verifies attempt tokens, so workers need no credentials (ADR
44). It keeps no state; any number of replicas serve.
"""
