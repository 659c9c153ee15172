"""The state machine of runs, steps, actions and attempts: events in, commands out.

The control plane's event loop and the simulator call :meth:`Machine.apply`. It reads no clock and
does no I/O; time is an argument.
"""
