"""The room `identity` of the core; see DESIGN."""
