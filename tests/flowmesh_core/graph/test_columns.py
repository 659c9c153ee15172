"""The columns of a step's rows, as far as the compiler knows them."""

from flowmesh_core.catalog.load import builtin_catalog
from flowmesh_core.graph.columns import output_columns
from flowmesh_core.identity.coerce import effective_params


def test_a_column_named_by_a_parameter_is_there_where_the_parameter_is() -> None:
    topk = builtin_catalog().newest("retrieve.topk")
    assert topk is not None
    rows = {"rows": frozenset({"question"})}
    without = output_columns(topk, effective_params(topk, {}), rows)
    given = output_columns(topk, effective_params(topk, {"context": "facts", "join": "x"}), rows)
    assert without == {"question", "found"}
    assert given == {"question", "found", "facts"}
