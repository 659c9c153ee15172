"""Where the cluster keeps what it builds, and what it is while it runs."""

from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "e2e"
BINS = CACHE / "bin"
IMAGES = CACHE / "images"
STOCK = CACHE / "stock"
STATE = CACHE / "cluster"
AUDIT = STATE / "audit"
"""What service accounts asked the API server for: the log and its policy."""
KUBECONFIG = STATE / "access" / "admin.kubeconfig"
LOADED = STATE / "loaded.json"
"""Which images the running cluster holds, by the names of their archives."""
