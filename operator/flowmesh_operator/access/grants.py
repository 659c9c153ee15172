"""The kubectl commands that let the operator read an object; used as remedies in messages."""

from flowmesh_operator.settings import OperatorSettings


def grant(settings: OperatorSettings, namespace: str, resource: str, name: str) -> str:
    """Returns the kubectl commands that grant the operator ``get`` on one object.

    Args:
        settings: have the operator's namespace and service account.
        namespace: the object's namespace.
        resource: its plural resource name, such as ``secrets``.
        name: its name.
    """
    own = f"{settings.namespace}:{settings.service_account}"
    role = f"flowmesh-reads-{name}"
    return (
        f"kubectl create role {role} -n {namespace} --verb=get --resource={resource}"
        f" --resource-name={name} && kubectl create rolebinding {role} -n {namespace}"
        f" --role={role} --serviceaccount={own}"
    )
