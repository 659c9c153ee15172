"""Starts and ends the cluster."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from e2e.cluster import control_plane, dns, image_store, network_policies, node, tools
from e2e.cluster.access import write_access
from e2e.cluster.certificates import make_certificates
from e2e.cluster.images import pause_image
from e2e.cluster.leak_check import find_leaks
from e2e.cluster.namespaces import NODE_ADDRESS, Namespaces
from e2e.cluster.paths import AUDIT, BINS, KUBECONFIG, LOADED, STATE
from e2e.cluster.prerequisites import check_machine
from e2e.cluster.project_images import IN_CI

_WITHIN_S = 600.0


class ClusterError(RuntimeError):
    """A part of the cluster did not start; names it and its log."""


def up() -> Path:
    """Starts the cluster unless it runs; returns the administrator's kubeconfig.

    Raises:
        ToolsError: a program is missing.
        ClusterError: a part does not start.
    """
    if _holder() is not None:
        return KUBECONFIG
    check_machine()
    tools.build(BINS)
    shutil.rmtree(STATE, ignore_errors=True)
    logs = STATE / "logs"
    logs.mkdir(parents=True)
    image_store.keep([pause_image(), *(i.archive for i in IN_CI if i.archive.is_file())])
    LOADED.write_text(json.dumps(image_store.images()))
    inside = Namespaces.make()
    (STATE / "holder.json").write_text(json.dumps(vars(inside)))
    certificates = make_certificates(STATE / "certificates", NODE_ADDRESS)
    access = STATE / "access"
    authority = certificates.authority
    tokens = write_access(access, control_plane.SERVER, authority, [node.NAME])

    def start(words: list[str]) -> None:
        inside.start(
            [str(BINS / words[0]), *words[1:]],
            logs / f"{words[0]}.log",
            {"PATH": f"{BINS}:/usr/sbin:/usr/bin:/sbin:/bin"},
        )

    start(control_plane.etcd(STATE))
    audit = control_plane.write_audit_policy(AUDIT)
    start(control_plane.api_server(certificates, tokens, audit=audit))
    start(["containerd", "--config", str(node.write_containerd(STATE, BINS, image_store.ROOT))])
    until(lambda: kubectl("get", "--raw", "/readyz", ok=False) == "ok", "kube-apiserver")
    start(control_plane.controllers(certificates, access / "controllers.kubeconfig"))
    start(control_plane.scheduler(access / "scheduler.kubeconfig"))
    until(lambda: node.socket(STATE).exists() and _ctr(inside, "version") != "", "containerd")
    config = node.write_kubelet(STATE, authority)
    start(node.kubelet(STATE, config, access / f"{node.NAME}.kubeconfig"))
    start(["kube-proxy", f"--config={node.write_proxy(STATE, access / 'proxy.kubeconfig')}"])
    kubectl("apply", "--filename=-", given=network_policies.manifests())
    kubectl("apply", "--filename=-", given=dns.manifests())
    start(dns.coredns(dns.write_dns(STATE, access / "dns.kubeconfig")))
    until(_node_ready, "kubelet")
    # It ends where its node is not known yet.
    start(network_policies.kube_router(access / "network-policies.kubeconfig"))
    until(_names_resolve, "coredns")
    until(network_policies.enforces, network_policies.PROGRAM)
    until(lambda: kubectl("get", "serviceaccount", "default", ok=False) != "", "controllers")
    return KUBECONFIG


def down() -> None:
    """Ends everything that :func:`up` started and removes what it wrote, except images.

    Raises:
        ClusterError: something remains.
    """
    held = _holder()
    began_s = time.time()
    if held is not None:
        began_s = (STATE / "holder.json").stat().st_mtime
        held.end()
    _remove_control_groups()
    shutil.rmtree(STATE, ignore_errors=True)
    image_store.restore()
    stays = find_leaks(began_s)
    if stays:
        raise ClusterError("the cluster has ended and left behind: " + "; ".join(stays))


def kubectl(*words: str, ok: bool = True, given: str | None = None) -> str:
    """Runs kubectl as the administrator; returns what it printed.

    Raises:
        ClusterError: kubectl failed, and must succeed.
    """
    done = subprocess.run(
        [str(BINS / "kubectl"), "--kubeconfig", str(KUBECONFIG), *words],
        capture_output=True,
        text=True,
        input=given,
        check=False,
    )
    if ok and done.returncode:
        raise ClusterError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout if done.returncode == 0 else ""


def until(holds: Callable[[], bool], part: str, within_s: float = _WITHIN_S) -> None:
    """Waits for a part of the cluster.

    Raises:
        ClusterError: it did not start in time; has the end of its log.
    """
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            log = STATE / "logs" / f"{part}.log"
            last = log.read_text()[-2000:] if log.is_file() else ""
            raise ClusterError(f"{part} did not come up in {within_s:.0f} s; see {log}\n{last}")
        time.sleep(0.1)


def namespaces() -> Namespaces:
    """Returns the running cluster's namespaces.

    Raises:
        ClusterError: no cluster runs.
    """
    held = _holder()
    if held is None:
        raise ClusterError("no cluster runs here: make cluster-up")
    return held


def _node_ready() -> bool:
    path = "{.items[*].status.conditions[?(@.type=='Ready')].status}"
    return kubectl("get", "nodes", "-o", f"jsonpath={path}", ok=False) == "True"


def _names_resolve() -> bool:
    try:
        with urllib.request.urlopen(dns.HEALTH, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _ctr(inside: Namespaces, *words: str) -> str:
    return inside.run(str(BINS / "ctr"), "--address", str(node.socket(STATE)), *words, ok=False)


def _holder() -> Namespaces | None:
    try:
        known = json.loads((STATE / "holder.json").read_text())
        words = Path(f"/proc/{known['first']}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    if b"sleep" not in words:
        return None
    return Namespaces(**known)


def _remove_control_groups() -> None:
    """Removes the kubelet's control groups, which outlive its processes."""
    for top in Path("/sys/fs/cgroup").glob("**/kubepods"):
        for group in sorted(top.rglob("*"), key=lambda p: -len(p.parts)):
            if group.is_dir():
                group.rmdir()
        top.rmdir()
