"""Finds a fabric and connects to it: target, state folder, API client."""
