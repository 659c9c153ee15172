"""`fmesh`: the command line and the laptop mode."""
