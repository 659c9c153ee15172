"""The room `lineage` of the core; see DESIGN."""
