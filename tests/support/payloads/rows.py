"""A made-up protocol: `POST /rows/<model>` with `{"rows": [[1, 2], …]}` is answered with `{"sums": [3, …]}`."""

import numpy as np
from starlette.routing import Route

from cluster_serving.frontend.api.json_codec import JsonCodec, endpoint
from cluster_serving.frontend.api.json_text import parse
from cluster_serving.frontend.apis import Apis
from cluster_serving.frontend.dataplane import DecodedRequest
from cluster_serving.frontend.server.http.responses import dumps
from cluster_serving.protocol.errors import RequestTooLarge
from cluster_serving.protocol.tensors import Encoded, encode


class RowsCodec(JsonCodec):
    """The codec: all that the protocol is made of."""

    protocol = "rows"

    def decode(self, body, most, described):
        rows = parse(body)["rows"]
        if len(rows) > most:
            raise RequestTooLarge(f"there are {len(rows)} rows; at most {most} are taken")
        (spec,) = described.inputs
        return DecodedRequest([Encoded(encode({spec.name: np.array(row, spec.dtype)})) for row in rows])

    def encode(self, model, asked, answer):
        return dumps({"sums": [float(sum(array.sum() for array in outputs.values())) for outputs in answer]})


def hang_on(monkeypatch):
    """Let the front ends that are made from now on have the protocol."""
    routes = Apis.routes

    def with_rows(apis):
        added = Route("/rows/{name}", endpoint(apis._front, RowsCodec()), methods=["POST"])
        return {**routes(apis), "rows": [added]}

    monkeypatch.setattr(Apis, "routes", with_rows)
