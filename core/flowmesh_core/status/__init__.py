"""The room `status` of the core; see DESIGN."""
