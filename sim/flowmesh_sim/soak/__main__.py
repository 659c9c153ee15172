"""The command ``python -m flowmesh_sim.soak``."""

from flowmesh_sim.soak.soak import main

main()
