"""Declarations of the commands with their options; ``flowmesh_cli.verbs`` implements them.

These modules import little more than typer, so that ``fmesh --help`` is fast; a command imports its
implementation when it runs.
"""
