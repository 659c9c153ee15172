"""How the fabric's views look on a terminal: pure functions from views to text and tables."""
