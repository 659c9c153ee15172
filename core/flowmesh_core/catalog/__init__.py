"""Engine contracts as data: what an engine takes, gives and promises; needs no engine library."""
