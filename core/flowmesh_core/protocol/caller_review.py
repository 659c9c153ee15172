"""What a router of a cluster asks the control plane about a token that is not one of a service.

The token is one of Kubernetes: the control plane has the API server review it, and says whether its
user may call the services of a namespace (``POST /v1/router/callers``). Fields are added at the
end, with a default.
"""

import msgspec


class CallerReviewRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question about a token.

    Attributes:
        token: as the client sent it.
        namespace: of the service that it wants to call; empty for the user's own: that of its
            service account, or else ``default``.
    """

    token: str
    namespace: str = ""


class CallerReview(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer.

    Attributes:
        user: the token's user; empty where the token is not valid.
        namespace: the one that was asked for, or the user's own.
        may_call: whether the user may call the services of that namespace.
    """

    user: str = ""
    namespace: str = ""
    may_call: bool = False
