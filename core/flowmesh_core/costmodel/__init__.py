"""The room `costmodel` of the core; see DESIGN."""
