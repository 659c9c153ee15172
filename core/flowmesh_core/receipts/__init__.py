"""The room `receipts` of the core; see DESIGN."""
