"""``python -m flowmesh_cli``."""

from flowmesh_cli.main import main

main()
