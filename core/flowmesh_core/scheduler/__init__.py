"""The room `scheduler` of the core; see DESIGN."""
