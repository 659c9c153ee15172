"""The evaluations of papers about online requests, replayed in virtual time and on one CPU core."""
