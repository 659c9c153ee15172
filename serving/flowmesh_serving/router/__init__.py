"""The router's process: its settings and sockets."""
