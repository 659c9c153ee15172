"""What a worker's hub decides about the calls that wait for its instances."""
