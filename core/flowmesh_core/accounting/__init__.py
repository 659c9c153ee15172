"""Splits what workers cost among runs and the fabric: ledger lines, meters, receipts.

The machine meters attempts with it; receipts are computed from ledger lines. Sums are exact:
receipts plus the fabric's account are the workers' bill, to the nano-dollar.
"""
