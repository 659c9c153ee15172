"""Projects the machine's state to what users see: run, step, worker and fabric status.

The control plane and the simulator call it; nothing reads a projection back.
"""
