"""``python -m flowmesh_operator``: a replica of the operator."""

import sys

from flowmesh_operator.main import main

if __name__ == "__main__":
    sys.exit(main())
