"""The worker agent: its connection, the attempts that it holds and what it reports."""
