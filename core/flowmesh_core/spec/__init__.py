"""The room `spec` of the core; see DESIGN."""
