"""Withholds published results that are no longer believed, and finds what was made of them."""
