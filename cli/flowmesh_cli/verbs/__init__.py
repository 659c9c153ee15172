"""What each command does, after its options are parsed."""
