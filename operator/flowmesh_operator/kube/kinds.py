"""The kinds of objects that the operator reads and writes, as ``KubeClient`` expects them."""

Kind = tuple[str, str, str]
"""Group, version, plural."""

WORKFLOWS: Kind = ("flowmesh.dev", "v1alpha1", "flowmeshworkflows")
POLICIES: Kind = ("flowmesh.dev", "v1alpha1", "flowmeshcachepolicies")
QUOTAS: Kind = ("flowmesh.dev", "v1alpha1", "flowmeshquotas")
POOLS: Kind = ("flowmesh.dev", "v1alpha1", "flowmeshworkerpools")
SERVICES: Kind = ("flowmesh.dev", "v1alpha1", "flowmeshservices")
NAMESPACES: Kind = ("", "v1", "namespaces")
SECRETS: Kind = ("", "v1", "secrets")
CONFIG_MAPS: Kind = ("", "v1", "configmaps")
PODS: Kind = ("", "v1", "pods")
EVENTS: Kind = ("", "v1", "events")
DEPLOYMENTS: Kind = ("apps", "v1", "deployments")
SERVICE_ACCOUNTS: Kind = ("", "v1", "serviceaccounts")
NETWORK_POLICIES: Kind = ("networking.k8s.io", "v1", "networkpolicies")
DISRUPTION_BUDGETS: Kind = ("policy", "v1", "poddisruptionbudgets")
HORIZONTAL_AUTOSCALERS: Kind = ("autoscaling", "v2", "horizontalpodautoscalers")
SCALED_OBJECTS: Kind = ("keda.sh", "v1alpha1", "scaledobjects")
TRIGGER_AUTHENTICATIONS: Kind = ("keda.sh", "v1alpha1", "triggerauthentications")
LEASES: Kind = ("coordination.k8s.io", "v1", "leases")
MIRRORED: dict[str, Kind] = {
    "workflows": WORKFLOWS,
    "pools": POOLS,
    "policies": POLICIES,
    "quotas": QUOTAS,
    "services": SERVICES,
    "namespaces": NAMESPACES,
}
"""The kinds in the informer cache, by their names there."""
