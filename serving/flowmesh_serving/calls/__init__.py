"""Calls of a router: which replica gets one, and what becomes of it."""
