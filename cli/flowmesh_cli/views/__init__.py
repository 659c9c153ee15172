"""Renders the API's documents as text and tables; no module here sends a request."""
