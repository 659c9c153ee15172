"""Sandboxed evaluators: child processes that evaluate what tenants wrote."""
