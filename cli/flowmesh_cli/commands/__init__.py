"""What every command takes and what it is for; the work is imported when a command runs.

Nothing here may import more than typer: ``fmesh --help`` answers at once.
"""
