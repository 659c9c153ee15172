"""``fmesh``: the command line, and the fabric that it runs on one machine."""
