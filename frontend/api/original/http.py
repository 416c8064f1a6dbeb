"""The HTTP API of the original: `/`, `/predict`, `/models…` and `/model-secure`, with its paths and its JSON."""

from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from cluster_serving.frontend.api.bodies import read_body
from cluster_serving.frontend.api.changes import check_origin
from cluster_serving.frontend.api.json_codec import JsonCodec
from cluster_serving.frontend.api.json_text import writing_cost
from cluster_serving.frontend.api.original import instances, predictions
from cluster_serving.frontend.api.original.prefix import FORMATS, format_of
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import Call, DataPlane, DecodedRequest
from cluster_serving.frontend.errors import Forbidden
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.options import ResponseFormat
from cluster_serving.frontend.server.http.call import call_of
from cluster_serving.frontend.server.http.compression import compressed
from cluster_serving.frontend.server.http.query import QueryRoute
from cluster_serving.frontend.server.http.responses import Json, Written, dumps, error_response, worst_error
from cluster_serving.protocol.columns import Columns, Outcomes
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import Outputs
from cluster_serving.protocol.slots import SlotReport, TensorSpec

# Programs search for the line of their version.
_WELCOME = "welcome to BigDL web serving frontend\nwelcome to analytics zoo web serving frontend\n"
# The text of the original, letter for letter.
_SECURED = "model secured secrect and salt succeed to put in redis"
_MAX_SECRET_BYTES = 64 << 10
_QUERY = ("responseFormat",)
_ANY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@dataclass(frozen=True, slots=True)
class _Codec(JsonCodec[DecodedRequest, Outcomes]):
    form: ResponseFormat
    protocol = "original"
    needs_signature = False

    def decode(self, body: bytes, most: int, described: SlotReport | None) -> DecodedRequest:
        records = instances.read(body, most, described)
        if isinstance(records, Columns):
            return DecodedRequest(records)
        good = [record for record in records if not isinstance(record, InvalidInput)]
        if len(good) == len(records):
            return DecodedRequest(good)
        refused = [(index, record) for index, record in enumerate(records) if isinstance(record, InvalidInput)]
        return DecodedRequest(good, refused=refused)

    def merge(self, call: Call, model: PublishedModel, asked: DecodedRequest, outcomes: Outcomes) -> Outcomes:
        if isinstance(outcomes, Columns) and not asked.refused:
            return outcomes
        answers, refused = iter(outcomes), dict(asked.refused)
        count = len(outcomes) + len(refused)
        return [refused[at] if at in refused else _located(next(answers), at) for at in range(count)]

    def encoding_cost(self, asked: DecodedRequest, answer: Outcomes) -> int:
        return writing_cost(answer, as_texts=self.form != "json")

    def encode(
        self, model: PublishedModel, asked: DecodedRequest, answer: Outcomes
    ) -> tuple[bytes, ServingError | None]:
        # The status is that of the worst error, and the body has all predictions nevertheless; of one instance, they
        # would say the same again.
        error = None if isinstance(answer, Columns) else worst_error(answer)
        if error and len(answer) == 1 and self.form == "json":
            return dumps({"error": error.message, "code": error.code}), error
        fields = {"error": error.message, "code": error.code} if error else None
        return predictions.body(answer, self.form, model.post_processing, fields), error


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of this API."""
    api = _OriginalRoutes(front)
    welcome = PlainTextResponse(_WELCOME)
    return [
        QueryRoute("/predict", api.predict, methods=["POST"], query=_QUERY),
        Route("/", welcome, methods=_ANY_METHOD),
        Route("/models", api.models, methods=["GET"]),
        Route("/models/{name}", api.models, methods=["GET"]),
        Route("/models/{name}/versions/{version}", api.model, methods=["GET"]),
        QueryRoute("/models/{name}/predict", api.predict, methods=["POST"], query=_QUERY),
        QueryRoute("/models/{name}/versions/{version}/predict", api.predict, methods=["POST"], query=_QUERY),
        Route("/model-secure", api.model_secure, methods=["POST"]),
    ]


def describe(front: FrontEnd, model: PublishedModel) -> dict[str, Any]:
    """Return the description of a model for clients."""
    loaded = model.loaded
    states = [report.state for report in model.reports]
    return {
        "modelName": model.name,
        "modelVersion": model.version,
        "redisInputQueue": model.job,
        "state": model.state,
        "slots": {state: states.count(state) for state in sorted(set(states))},
        "engine": loaded.engine if loaded else "",
        "inputs": [_described(spec) for spec in loaded.inputs] if loaded else [],
        "outputs": [_described(spec) for spec in loaded.outputs] if loaded else [],
        "features": [spec.name for spec in loaded.inputs] if loaded else [],
        "postProcessing": loaded.post_processing if loaded else "",
        "inputAlreadyBatched": loaded.already_batched if loaded else False,
        "maxBatchSize": loaded.max_batch_size if loaded else 1,
        "threadPerModel": loaded.threads if loaded else 0,
        "refusedModel": model.refused and front.told(model.refused, "cluster-serving-cli status has the cause"),
    }


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": spec.shape}


class _OriginalRoutes:
    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._plane = DataPlane(front)

    async def predict(self, request: Request) -> Response:
        options, call = self._front.options, call_of(request)
        response_format = format_of(request, options.response_format)
        if request.scope["query_string"]:
            response_format = _asked_format(request, response_format)
        # The content type is ignored: the calls of the original's guides have that of curl.
        body = await read_body(call, options)
        path = request.path_params
        codec = _Codec(response_format)
        model = await self._plane.find(call, codec.protocol, path.get("name", ""), path.get("version", ""))
        content, error = await self._plane.infer(call, codec, model, body)
        return (
            await compressed(call, Written(content))
            if error is None
            else error_response(error, request.scope["path"], content)
        )

    async def models(self, request: Request) -> Response:
        name = request.path_params.get("name", "")
        if name:
            await self._front.registry.model(name)
        listed = await self._front.registry.versions()
        return Json([describe(self._front, model) for model in listed if not name or model.name == name])

    async def model(self, request: Request) -> Response:
        path = request.path_params
        return Json(describe(self._front, await self._front.registry.model(path["name"], path["version"])))

    async def model_secure(self, request: Request) -> Response:
        options = self._front.options
        allowed = options.model_secure_enabled
        if not (options.is_local or options.api_keys_file if allowed is None else allowed):
            raise Forbidden(
                "anybody could replace the secret of the models: configure apiKeysFile, or set modelSecureEnabled"
            )
        check_origin(request, options, "replace the secret of the models")
        body = await read_body(call_of(request), options, _MAX_SECRET_BYTES)
        try:
            fields = parse_qs(body.decode(), strict_parsing=True, max_num_fields=16)
            secret, salt = fields["secret"][-1], fields["salt"][-1]
        except (ValueError, KeyError):
            # The body may hold a secret, so the message does not repeat it.
            raise InvalidInput("the body is not secret=…&salt=…, both with a value") from None
        jobs = list(dict.fromkeys([model.host or model.job for model in await self._front.registry.versions()]))
        # Jobs that start later read the key without a job's name, which a cluster does not have.
        dispatch = self._front.dispatch
        await dispatch.ask_all(
            jobs if dispatch.jobs else ["", *jobs],
            lambda pipeline, job: pipeline.hset(JobKeys(job).secret, mapping={"secret": secret, "salt": salt}),
        )
        return PlainTextResponse(_SECURED)


def _located(outcome: Outputs | ServingError, index: int) -> Outputs | ServingError:
    """Return an outcome; an error of the input names its instance."""
    return type(outcome)(f"instances[{index}]: {outcome}") if isinstance(outcome, InvalidInput) else outcome


def _asked_format(request: Request, default: ResponseFormat) -> ResponseFormat:
    asked = request.query_params.get("responseFormat", default)
    if asked not in FORMATS:
        raise InvalidInput(f"responseFormat is {asked[:32]!r}; expected one of {', '.join(FORMATS)}")
    return cast("ResponseFormat", asked)
