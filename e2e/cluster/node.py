"""A node: containerd, kubelet, kube-proxy, and the pods' network (a bridge)."""

import json
from pathlib import Path

from e2e.cluster.control_plane import PODS
from e2e.cluster.namespaces import NODE_ADDRESS

NAME = "node-1"
POD_RANGE = "10.244.0.0/24"
PAUSE_IMAGE = "localhost/pause:1"
DNS_DOMAIN = "cluster.local"
DNS_SERVICE = "10.96.0.10"
PROXY_HEALTH_PORT = 10256
"""Of kube-proxy, on each address of the node."""


def write_containerd(folder: Path, bins: Path, root: Path) -> Path:
    """Writes containerd's configuration and the pods' network; returns the file.

    Args:
        folder: the folder of the files and of containerd's state.
        bins: the folder of the CNI programs.
        root: the folder of its images.
    """
    cni = folder / "cni"
    cni.mkdir(parents=True, exist_ok=True)
    plugins = [
        {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(folder / "addresses"),
                "ranges": [[{"subnet": POD_RANGE}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}, "backend": "nftables"},
    ]
    network = {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}
    (cni / "10-pods.conflist").write_text(json.dumps(network))
    file = folder / "containerd.toml"
    file.write_text(
        f"""version = 3
root = "{root}"
state = "{folder / "run"}"
[grpc]
  address = "{socket(folder)}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{bins}"]
    conf_dir = "{cni}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE_IMAGE}"
"""
    )
    return file


def socket(folder: Path) -> Path:
    """Returns containerd's socket."""
    return folder / "containerd.sock"


def write_kubelet(folder: Path, authority: Path) -> Path:
    """Writes the kubelet's configuration; returns the file."""
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": DNS_DOMAIN,
        "containerRuntimeEndpoint": f"unix://{socket(folder)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "resolvConf": "/dev/null",
        "podLogsDir": str(folder / "pod-logs"),
        "address": NODE_ADDRESS,
        # A laptop's disk is often nearly full; pods must not be evicted for it.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "4s",
        "shutdownGracePeriod": "0s",
    }
    file = folder / "kubelet.json"
    file.write_text(json.dumps(config, indent=1))
    return file


def kubelet(folder: Path, config: Path, kubeconfig: Path) -> list[str]:
    """Returns the kubelet's command line."""
    return [
        "kubelet",
        f"--config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={folder / 'kubelet'}",
        f"--cert-dir={folder / 'kubelet-certificates'}",
        f"--hostname-override={NAME}",
        f"--node-ip={NODE_ADDRESS}",
        "--node-labels=topology.kubernetes.io/zone=zone-a",
    ]


def write_proxy(folder: Path, kubeconfig: Path) -> Path:
    """Writes kube-proxy's configuration; returns the file."""
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": PODS,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "conntrack": {"maxPerCore": 0},
        "hostnameOverride": NAME,
        "healthzBindAddress": f"0.0.0.0:{PROXY_HEALTH_PORT}",
        "nodePortAddresses": [f"{NODE_ADDRESS}/32"],
    }
    file = folder / "proxy.json"
    file.write_text(json.dumps(config, indent=1))
    return file
