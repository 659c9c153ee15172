"""The room `graph` of the core; see DESIGN."""
