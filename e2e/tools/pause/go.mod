module flowmesh.dev/e2e/pause

go 1.26
