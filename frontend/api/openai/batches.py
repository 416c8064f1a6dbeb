"""OpenAI's batch form over HTTP: `/v1/files` and `/v1/batches`."""

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cluster_serving.frontend.api.bodies import read_body
from cluster_serving.frontend.api.idempotency import IdempotencyKeys
from cluster_serving.frontend.api.json_text import parse
from cluster_serving.frontend.api.openai.batch_lines import ENDPOINTS
from cluster_serving.frontend.api.openai.batch_runner import BatchRunner
from cluster_serving.frontend.api.openai.batch_store import BatchStore
from cluster_serving.frontend.api.openai.files import FileStore
from cluster_serving.frontend.api.openai.lifetime import KEPT, of_form, seconds_of
from cluster_serving.frontend.api.openai.multipart import parts
from cluster_serving.frontend.api.openai.paging import page
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.server.http.call import HttpCall, call_of
from cluster_serving.frontend.server.http.query import QueryRoute
from cluster_serving.frontend.server.http.responses import Json
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.values.lists import shown

_OPEN = ("validating", "in_progress")
_LONGEST_REQUEST = 256 << 10
_FORM = {"file", "purpose", "expires_after[anchor]", "expires_after[seconds]"}
_BATCH = {"endpoint", "input_file_id", "completion_window", "metadata", "output_expires_after"}


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of files and batches; none if the front end keeps no files."""
    if not front.options.max_file_bytes:
        return []
    api = _BatchRoutes(front)
    made: list[Any] = [
        ("/v1/files", api.upload, "POST"),
        ("/v1/files", api.files, "GET", "limit", "after", "order", "purpose"),
        ("/v1/files/{id}", api.file, "GET"),
        ("/v1/files/{id}", api.delete, "DELETE"),
        ("/v1/files/{id}/content", api.content, "GET"),
        ("/v1/batches", api.submit, "POST"),
        ("/v1/batches", api.batches, "GET", "limit", "after"),
        ("/v1/batches/{id}", api.batch, "GET"),
        ("/v1/batches/{id}/cancel", api.cancel, "POST"),
    ]
    return [QueryRoute(path, handler, methods=[method], query=query) for path, handler, method, *query in made]


class _BatchRoutes:
    def __init__(self, front: FrontEnd) -> None:
        self._options = front.options
        self._files = FileStore(front)
        self._store = BatchStore(front, self._files)
        self._runner = BatchRunner(front, self._files, self._store)
        self._keys = IdempotencyKeys(front, "/v1/batches", KEPT)
        front.on_start.append(self._runner.start)
        front.on_close.append(self._runner.close)

    async def upload(self, request: Request) -> Response:
        call = _call(request)
        form = parts(await read_body(call, self._options), call.header(b"content-type") or "")
        if unknown := sorted(form.keys() - _FORM):
            raise InvalidInput(f"the form has no field {unknown[0][:64]!r}, but {', '.join(sorted(_FORM))}")
        if "file" not in form or not form["file"].filename:
            raise InvalidInput("the form has no 'file'")
        if "purpose" not in form or form["purpose"].content != b"batch":
            raise InvalidInput("'purpose' is not 'batch'")
        sent = form.pop("file")
        kept = seconds_of(
            "expires_after", of_form({name: part.content.decode("latin1") for name, part in form.items()})
        )
        file = await self._files.put(sent.content, sent.filename, "batch", call.client, kept)
        return Json(file.shown())

    async def files(self, request: Request) -> Response:
        purpose = request.query_params.get("purpose")
        files = [file.shown() for file in await self._files.of(_call(request).client)]
        return Json(page(request, [file for file in files if purpose in (None, file["purpose"])]))

    async def file(self, request: Request) -> Response:
        return Json((await self._files.get(request.path_params["id"], _call(request).client)).shown())

    async def delete(self, request: Request) -> Response:
        await self._files.delete(request.path_params["id"], _call(request).client)
        return Json({"id": request.path_params["id"], "object": "file", "deleted": True})

    async def content(self, request: Request) -> Response:
        file = await self._files.get(request.path_params["id"], _call(request).client)
        headers = {"content-length": str(file.bytes)}
        return StreamingResponse(self._files.pages(file), headers=headers, media_type="application/octet-stream")

    async def submit(self, request: Request) -> Response:
        call = _call(request)
        body = await read_body(call, self._options, _LONGEST_REQUEST)
        made = await self._keys.once(call, body, partial(self._make, call, body), self._store.cancel)
        return Json(await self._store.get(made, call.client))

    async def _make(self, call: HttpCall, body: bytes) -> str:
        """Queue the batch in a body, and return its id."""
        asked = parse(body)
        if unknown := sorted(asked.keys() - _BATCH):
            raise InvalidInput(f"there is no parameter {unknown[0][:64]!r}; there are {', '.join(sorted(_BATCH))}")
        endpoint, file_id, metadata = asked.get("endpoint"), asked.get("input_file_id"), asked.get("metadata")
        if not isinstance(endpoint, str) or endpoint not in ENDPOINTS:
            raise InvalidInput(f"'endpoint' is {shown(endpoint)}; expected {', '.join(ENDPOINTS)}")
        if asked.get("completion_window") != "24h":
            raise InvalidInput("'completion_window' is not '24h'")
        if not isinstance(file_id, str):
            raise InvalidInput("'input_file_id' is not a text")
        if not (metadata is None or _is_metadata(metadata)):
            raise InvalidInput("'metadata' is not an object of at most 16 texts of at most 512 characters")
        seconds_of("output_expires_after", asked.get("output_expires_after"))
        await self._files.get(file_id, call.client)
        await self._files.check_room()
        await self._store.check_room(call.client)
        batch = await self._store.make(asked, call.client)
        await self._runner.add(batch, call.client)
        return str(batch["id"])

    async def batches(self, request: Request) -> Response:
        return Json(page(request, await self._store.of(_call(request).client)))

    async def batch(self, request: Request) -> Response:
        return Json(await self._store.get(request.path_params["id"], _call(request).client))

    async def cancel(self, request: Request) -> Response:
        batch_id, owner = request.path_params["id"], _call(request).client
        batch = await self._store.get(batch_id, owner)
        if batch["status"] not in (*_OPEN, "cancelling"):
            raise InvalidInput(f"the batch cannot be cancelled: it is {batch['status']}")
        await self._store.cancel(batch_id)
        return Json(await self._store.get(batch_id, owner))


def _call(request: Request) -> HttpCall:
    call = call_of(request)
    call.protocol = "openai"
    return call


def _is_metadata(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) > 16:
        return False
    return all(isinstance(text, str) and len(text) <= 512 for pair in value.items() for text in pair)
