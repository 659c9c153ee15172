"""The room `dataset` of the core; see DESIGN."""
