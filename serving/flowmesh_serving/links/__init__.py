"""Connections between a router and the hubs of workers."""
