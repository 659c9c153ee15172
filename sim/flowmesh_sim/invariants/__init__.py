"""What must hold after every event of a simulation."""
