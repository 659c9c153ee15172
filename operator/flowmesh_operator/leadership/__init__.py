"""Which replica leads, and what it does while it does."""
