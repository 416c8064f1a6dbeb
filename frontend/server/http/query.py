"""Parameters of a query: each is one that the route takes, or the request is refused."""

from collections import Counter
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qsl

from starlette.routing import Route

from cluster_serving.protocol.errors import InvalidInput

_MOST_FIELDS = 64
_NEAREST = 3


class QueryRoute(Route):
    """A route that takes the parameters `query`; a plain `Route` takes none."""

    def __init__(self, *arguments: Any, query: Collection[str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.query = query


def check(query: bytes, route: Route) -> None:
    """Check the query of a request to a route.

    Raises:
        InvalidInput: If the route does not take one of its parameters, or it has a parameter twice.
    """
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise InvalidInput(f"the query is not UTF-8, or has more than {_MOST_FIELDS} parameters") from None
    known = getattr(route, "query", ())
    for name, count in Counter(name for name, _ in pairs).items():
        if name not in known:
            raise InvalidInput(f"there is no query parameter {name[:64]!r} at {route.path}; {_remedy(name, known)}")
        if count > 1:
            raise InvalidInput(f"the query has {name!r} {count} times; expected it once")


def _remedy(name: str, known: Collection[str]) -> str:
    nearest = get_close_matches(name, known, _NEAREST, 0.0)
    return f"there is {', '.join(nearest)}" if nearest else "it takes none; /docs lists the API"
