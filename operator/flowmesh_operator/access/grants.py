"""How the owner of an object lets the operator read it: the commands, for messages."""

from flowmesh_operator.settings import OperatorSettings


def grant(settings: OperatorSettings, namespace: str, resource: str, name: str) -> str:
    """The kubectl commands that give the operator the right to get one object.

    Args:
        settings: name the operator's service account.
        namespace: the object's.
        resource: its kind in the plural, such as ``secrets``.
        name: its name.
    """
    own = f"{settings.namespace}:{settings.service_account}"
    role = f"flowmesh-reads-{name}"
    return (
        f"kubectl create role {role} -n {namespace} --verb=get --resource={resource}"
        f" --resource-name={name} && kubectl create rolebinding {role} -n {namespace}"
        f" --role={role} --serviceaccount={own}"
    )
