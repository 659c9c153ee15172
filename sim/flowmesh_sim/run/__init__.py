"""One simulation: its arrivals, measurements and plots."""
