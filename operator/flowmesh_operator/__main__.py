"""``python -m flowmesh_operator``: runs one replica of the operator."""

import sys

from flowmesh_operator.main import main

if __name__ == "__main__":
    sys.exit(main())
