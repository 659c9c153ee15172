"""The single writer: the event loop, the executor of its commands and the pool of store tasks.

Everything that changes the machine passes through :class:`EventLoop`, in order.
"""
