"""A program with the Python client, for a pod: prints a JSON line at its end.

It creates the object of the workflow in its first argument with the rights of the pod's account,
reads what the run made, and deletes the run's records.
"""

import json
import os
import sys

import flowmesh_sdk as fm

ROWS = [{"amount": 1}, {"amount": 41}]


def main() -> None:
    """Runs the workflow."""
    server = f"https://flowmesh-gateway.{os.environ['FABRIC']}.svc:8470"
    client = fm.connect(server, ca="/client/ca.crt", cluster=True)
    flow = fm.load(sys.argv[1], inputs={"rows": ROWS})
    run = flow.run(client=client, timeout_s=180)
    found = {
        "uid": run.uid,
        "phase": run.status().phase,
        "namespace": run.status().namespace,
        "rows": run.result()["total"].to_list(),
    }
    run.delete()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
