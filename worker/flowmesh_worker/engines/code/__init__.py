"""The engine ``code.python`` and the sandbox that runs users' code."""
