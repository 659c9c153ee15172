"""Engine hosts: a process per running engine, and the agent's end of it."""
