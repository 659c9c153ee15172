"""Workflows as graphs: references, fan-out, order, conditions; compiled to a plan."""
