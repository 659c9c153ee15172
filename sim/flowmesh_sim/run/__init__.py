"""One simulation: its arrivals, its measurements and plots."""
