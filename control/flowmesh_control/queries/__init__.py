"""Read-only queries about runs, plans, placement and the fabric; called by API and operator."""
