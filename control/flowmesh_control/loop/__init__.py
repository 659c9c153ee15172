"""The event loop, the executor of the machine's commands and the pool of store tasks.

Everything that changes the machine passes through :class:`EventLoop`, its only writer, in order.
"""
