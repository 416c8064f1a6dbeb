"""The OpenAPI document `/openapi.json`, and the page `/docs`, which shows the document without the internet."""

from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.server.responses import Json

_FOLDER = Path(__file__).parent


@cache
def document(keys: bool) -> dict[str, Any]:
    """Return `openapi.yaml` with the version of the package; without security schemes if no API keys are needed."""
    content: dict[str, Any] = yaml.safe_load((_FOLDER / "openapi.yaml").read_text("utf8"))
    content["info"]["version"] = version("cluster-serving")
    if not keys:
        del content["security"], content["components"]["securitySchemes"]
    return content


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of the document and of its page."""
    described = document(front.admission.has_keys)
    page = (_FOLDER / "docs.html").read_text("utf8")

    async def openapi(_: Request) -> Response:
        return Json(described)

    async def docs(_: Request) -> Response:
        return HTMLResponse(page)

    return [Route("/openapi.json", openapi, methods=["GET"]), Route("/docs", docs, methods=["GET"])]
