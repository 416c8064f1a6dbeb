"""Lists of OpenAI's API, which a query cuts into pages."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from cluster_serving.frontend.errors import FileNotFound
from cluster_serving.protocol.errors import InvalidInput

MOST_LISTED = 10_000
"""Most items of a page, and their number by default."""

_ORDERS = ("asc", "desc")


def page(request: Request, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the page of a list that the parameters `limit`, `after` and `order` of a request ask for.

    Args:
        request: The request.
        items: All items, the newest first.

    Raises:
        InvalidInput: If `limit` or `order` has another value.
        FileNotFound: If no item has the id `after`.
    """
    query = request.query_params
    order, limit = query.get("order", "desc"), query.get("limit", str(MOST_LISTED))
    if order not in _ORDERS:
        raise InvalidInput(f"'order' is {order[:32]!r}; expected {' or '.join(_ORDERS)}")
    if not (limit.isascii() and limit.isdecimal() and 0 < int(limit[:9]) <= MOST_LISTED):
        raise InvalidInput(f"'limit' is {limit[:32]!r}; expected a whole number from 1 to {MOST_LISTED}")
    rest = [*items] if order == "desc" else [*reversed(items)]
    if (after := query.get("after")) is not None:
        ids = [item["id"] for item in rest]
        if after not in ids:
            raise FileNotFound(f"'after' is {after[:64]!r}, which this list does not have, or has no longer")
        rest = rest[ids.index(after) + 1 :]
    data = rest[: int(limit)]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"object": "list", "data": data, **ends, "has_more": len(data) < len(rest)}
