"""Services: their records, their releases, and where their replicas are."""
