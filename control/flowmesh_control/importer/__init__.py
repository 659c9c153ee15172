"""What users upload: received into files, and decoded where it cannot harm the control plane."""
