"""Read-only answers about runs, plans, placement and the fabric, for the API and the CLI."""
