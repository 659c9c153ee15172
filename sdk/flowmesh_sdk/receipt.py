"""A run's receipt, with amounts in dollars and a table for notebooks."""

from decimal import Decimal

from flowmesh_api.v1.receipts import Receipt as Document
from flowmesh_api.v1.receipts import ReceiptLine
from flowmesh_sdk.html import table_html

_NANO = Decimal(1_000_000_000)


class Receipt:
    """What a run paid.

    Attributes:
        document: all that the API says.
    """

    def __init__(self, document: Document) -> None:
        self.document = document

    @property
    def paid_usd(self) -> Decimal:
        """Dollars that it paid, exactly."""
        return self.document.paid_nanousd / _NANO

    @property
    def saved_usd(self) -> Decimal:
        """Dollars that sharing saved it."""
        return self.document.saved_nanousd / _NANO

    @property
    def executed(self) -> int:
        """Actions that ran to a result for it, as :attr:`Run.executed` counts them."""
        return self.document.executed

    @property
    def hits(self) -> int:
        """Actions that it did not have to run."""
        return self.document.hits

    @property
    def lines(self) -> tuple[ReceiptLine, ...]:
        """A line per step."""
        return self.document.lines

    def __repr__(self) -> str:
        """Shows both amounts."""
        return f"<Receipt {self.document.uid}: paid ${self.paid_usd:f}, saved ${self.saved_usd:f}>"

    def _repr_html_(self) -> str:
        rows = [
            {
                "step": line.step,
                "ran": line.executed,
                "reused": line.hits + line.in_flight,
                "paid, $": f"{line.paid_nanousd / _NANO:f}",
                "saved, $": f"{line.saved_nanousd / _NANO:f}",
            }
            for line in self.lines
        ]
        return table_html(rows, title=repr(self)[1:-1])
