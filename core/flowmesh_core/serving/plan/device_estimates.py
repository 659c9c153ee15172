"""Step times of an engine on classes of device where it never ran, from one where it was measured.

The roofline that actions are planned with (``costmodel.prior``) says how two classes differ; the
measured class says how far it is from that. Moves of replicas use the estimate alone: a target that
cannot be kept is never judged by it, and what is measured takes its place.
"""

from collections.abc import Collection, Mapping

from flowmesh_core.costmodel.devices import rates_of
from flowmesh_core.costmodel.prior import token_step_s
from flowmesh_core.serving.profile import BatchProfile


def estimated_profiles(
    measured: Mapping[str, BatchProfile], classes: Collection[str], component_bytes: int
) -> dict[str, BatchProfile]:
    """Returns step times on the classes of device that were not measured.

    Args:
        measured: by class of device; without any there is no estimate.
        classes: of the devices that there are.
        component_bytes: size of the weights.
    """
    if not measured:
        return {}
    source = min(measured)
    profile = measured[source]
    return {
        device_class: BatchProfile.of(
            {
                calls: profile.at(calls)
                * _step_s(device_class, component_bytes, calls)
                / _step_s(source, component_bytes, calls)
                for calls in profile.sizes
            }
        )
        for device_class in sorted(set(classes) - set(measured))
    }


def _step_s(device_class: str, component_bytes: int, calls: int) -> float:
    fixed_s, per_call_s = token_step_s(rates_of(device_class), component_bytes)
    return fixed_s + per_call_s * calls
