"""Models of devices, engines, content and the store: durations, sizes, energy."""
