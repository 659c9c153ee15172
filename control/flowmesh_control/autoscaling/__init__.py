"""The capacity signal that pools scale by, computed from the machine's snapshot."""
