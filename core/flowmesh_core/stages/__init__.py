"""Services of several stages: their values, where they run, and when they may begin."""
