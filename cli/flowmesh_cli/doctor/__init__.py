"""The checks of ``fmesh doctor``: what the first hour needs of this machine and installation."""
