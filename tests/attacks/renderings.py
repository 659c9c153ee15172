"""Renders a template and returns its meter, also if it fails."""

from typing import Any

from jinja2 import Environment

from flowmesh_core.catalog.template_meter import RenderingMeter
from flowmesh_core.catalog.templates import context, environment


def render(
    text: str, row: dict[str, Any], env: Environment | None = None
) -> tuple[str, RenderingMeter]:
    """Returns the text and the meter; an exception has the meter as an attribute."""
    template = (env or environment()).from_string(text)
    rendering: Any = template.new_context(context(row))
    try:
        return "".join(template.root_render_func(rendering)), rendering.meter
    except Exception as e:
        e.meter = rendering.meter  # type: ignore[attr-defined]
        raise
