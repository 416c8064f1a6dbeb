"""The OpenAPI document `/openapi.json`, which the page `/docs` shows."""

from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from starlette.routing import Route

from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.server.http.responses import Json

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
    """Return the route of the document."""
    return [Route("/openapi.json", Json(document(front.admission.has_keys)), methods=["GET"])]
