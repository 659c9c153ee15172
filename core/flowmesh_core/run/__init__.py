"""The room `run` of the core; see DESIGN."""
