"""The worker's end of services: the hub, which passes calls from routers to engine hosts."""
