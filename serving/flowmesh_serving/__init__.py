"""Online serving: the router takes requests and passes them to replicas of services."""
