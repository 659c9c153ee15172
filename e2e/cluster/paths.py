"""Paths of the cluster's builds and of its state."""

from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "e2e"
BINS = CACHE / "bin"
IMAGES = CACHE / "images"
STOCK = CACHE / "stock"
STATE = CACHE / "cluster"
AUDIT = STATE / "audit"
"""The audit log of service accounts' requests, and its policy."""
KUBECONFIG = STATE / "access" / "admin.kubeconfig"
LOADED = STATE / "loaded.json"
"""The images in the running cluster, by the names of their archives."""
