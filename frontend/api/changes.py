"""Who may change something over HTTP: a caller with an API key, or a page of this server on this machine."""

from urllib.parse import urlsplit

from starlette.requests import Request

from cluster_serving.frontend.errors import Forbidden
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server.http.call import call_of
from cluster_serving.settings.addresses import LOOPBACK


def check_change(request: Request, options: HttpOptions, what: str) -> None:
    """Refuse a change for which no API key is needed: one from elsewhere, or from a page of another origin.

    Raises:
        Forbidden: If it is refused; the message says that `what` is not allowed.
    """
    # A browser sends no key by itself.
    if call_of(request).client:
        return
    if not options.is_local:
        raise Forbidden(f"anybody could {what}: configure apiKeysFile")
    check_origin(request, options, what)


def check_origin(request: Request, options: HttpOptions, what: str) -> None:
    """Refuse what a page of another origin asks for; `corsOrigins` are allowed.

    A browser lets any web page send a form to this server, for instance on the machine of a developer.

    Raises:
        Forbidden: If it is refused.
    """
    origin = request.headers.get("origin")
    if origin not in (None, *options.cors_origins) and not _is_own(str(origin), request, options.interface):
        raise Forbidden(f"a page of another origin may not {what}; see corsOrigins")


def _is_own(origin: str, request: Request, interface: str) -> bool:
    """Return True if the origin is a page of this server.

    The header Host is not trusted: the name of another server may resolve to the address of this one.
    """
    try:
        parts = urlsplit(origin)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return False
    return parts.hostname in (*LOOPBACK, interface) and port == request.scope["server"][1]
