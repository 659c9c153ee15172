"""What routers and hubs decide about calls of services: pure, with time as an argument."""
