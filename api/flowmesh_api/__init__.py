"""The control API's requests and responses, by version.

Servers and clients share these types; the package imports msgspec and the standard library only.
"""
