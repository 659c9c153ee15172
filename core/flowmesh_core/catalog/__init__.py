"""Engine contracts as data: what an engine takes, gives and promises, readable without its libraries."""
