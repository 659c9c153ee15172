"""The room `protocol` of the core; see DESIGN."""
