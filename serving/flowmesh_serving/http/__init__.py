"""The HTTP side of the router: OpenAI's endpoints."""
