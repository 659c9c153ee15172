"""What a router decides about a request: whether to take it, and which replica gets it."""
