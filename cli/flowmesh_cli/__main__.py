"""``python -m flowmesh_cli``: runs ``fmesh``."""

from flowmesh_cli.main import main

main()
