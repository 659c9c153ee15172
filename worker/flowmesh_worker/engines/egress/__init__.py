"""Checks of network addresses, shared by the engines that connect to other hosts."""
