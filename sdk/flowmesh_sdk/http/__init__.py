"""Requests to the control API."""
