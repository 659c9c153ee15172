"""The room `sharing` of the core; see DESIGN."""
