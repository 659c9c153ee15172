"""Engine contracts as data: an engine's ports, parameters and promises, without its library."""
