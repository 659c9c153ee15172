"""The room `fleet` of the core; see DESIGN."""
