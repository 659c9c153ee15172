"""Workflows as graphs: references, fan-out, order, conditions; compiled to what the machine runs."""
