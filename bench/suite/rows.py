"""The rows of the benchmark: each one measures one claim, and returns the results for the file."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.generator import Load
from cluster_serving.bench.load.payload import Record
from cluster_serving.bench.load.target import Endpoint, references
from cluster_serving.bench.suite import models, pieces
from cluster_serving.bench.suite.files import beside, files, flink
from cluster_serving.bench.suite.grpc_target import over_grpc
from cluster_serving.bench.suite.peers import PEERS, SOURCES, Work
from cluster_serving.bench.suite.repository import repository
from cluster_serving.bench.suite.session import BenchSession, Measurement, Run
from cluster_serving.bench.suite.stack import AS_INSTALLED, Stack
from cluster_serving.bench.suite.steady import SteadyRuns
from cluster_serving.client import AsyncInputQueue
from cluster_serving.protocol.inputs import Array

IN_FLIGHT = 8
HTTP_IN_FLIGHT = 32
PIPELINE = 512
# A model this small computes 128 vectors as fast as 32.
_LARGE_BATCH = 128
_TEXTS_IN_FLIGHT = 64
_TEXTS = 32
_PIECES_AT_ONCE = 16
_BARE_BATCHES = (1, 8)
_OURS, _NATIVE = "Cluster Serving", "Cluster Serving, Python client"
_TENSORS = "Cluster Serving, KServe's binary tensors"
_BEST = {"postProcessing": "topN(1)"}


def images(
    session: BenchSession,
    kind: str = "jpeg",
    precision: str = "",
    in_flight: int = IN_FLIGHT,
    over_http: bool = False,
    network: str = "mobilenet",
) -> Measurement:
    """Measure images of 224x224 to the best class of a network, each server in its best layout.

    Over HTTP, the job is compared with the peers, and all get the same JSON. The asyncio client's job is also compared
    with the bare loop; if the images are raw float32 (`tensor`) and not JPEG files (`jpeg`), with it alone. With a
    `precision`, all servers compute in it.
    """
    records = _images() if kind == "jpeg" else payload.random_records("x", (224, 224, 3), "float32", scale=255)
    work = Work(kind, _model(session, network), records, precision=precision, json=over_http)
    layouts = _layouts(session, work)
    right = session.peers.right(work)
    with Stack() as stack:

        def serve(name: str) -> None:
            settings = {"modelParallelism": layouts[name].workers, "threadPerModel": layouts[name].threads}
            stack.start("images", work.model, inferencePrecision=precision, **_BEST, **settings)

        def ours() -> Measurement:
            if over_http:
                return over_network(session, stack, "images", records, in_flight)
            # The references are its own single answers: in bfloat16 a network of fixed sizes rounds differently.
            return session.measure(stack.endpoint("images", records), Load("closed", "async", in_flight), stack.roles())

        tries: dict[str, dict[str, Run]] = {}
        if not over_http:
            tries["bare loop"] = {
                f"{name} batch {batch}": partial(bare, session, stack, work, batch)
                for name, work in layouts.items()
                for batch in _BARE_BATCHES
            }
            tries["bare loop, compiled for single records"] = {
                f"{name} batch 1": partial(bare, session, stack, replace(work, single=True), 1)
                for name, work in layouts.items()
            }
        for name in _able(session, work) if kind == "jpeg" else ():
            tries[name] = {
                layout: partial(peer, session, stack, name, work, in_flight, right) for layout, work in layouts.items()
            }
        return session.compare_best(layouts, serve, ours, tries)


def served(
    session: BenchSession,
    kind: str = "vector",
    in_flight: int = IN_FLIGHT,
    rows: int = 1,
    grpc: bool = False,
    as_installed: bool = False,
) -> Measurement:
    """Measure a front end against the peers: vectors of 64 floats, or JPEG files to the best class.

    A request has one vector, or several (`rows`). JSON goes to every server but Triton, which gets binary tensors, as
    does Cluster Serving in a second row. With `grpc` all of them get raw tensors. With `as_installed` nobody has an
    option for copies, threads and batches: Cluster Serving measures its own, the peers have their own defaults.
    """
    vector = kind == "vector"
    records = payload.random_records("x", (rows, 64) if rows > 1 else (64,), "float32") if vector else _images()
    model = _model(session, "mlp" if vector else "mobilenet")
    work = Work(kind, model, records, rows=rows, json=not vector, grpc=grpc, defaults=as_installed)
    layout = AS_INSTALLED if as_installed else {"maxBatchSize": max(rows, _LARGE_BATCH)} if rows > 1 else {}
    with Stack() as stack:
        stack.start("served", model, **layout, **({} if vector else _BEST))
        ours = partial(over_network, session, stack, "served", records, in_flight, batched=rows > 1)
        tensors = partial(ours, kind="v2", path="/v2/models/served/infer")
        others = _peers(session, stack, work, in_flight)
        if grpc:
            return session.compare(partial(ours, kind="grpc"), others)
        return session.compare(ours, others | ({_TENSORS: tensors} if vector else {}))


def embeddings(session: BenchSession, in_flight: int = IN_FLIGHT) -> Measurement:
    """Measure 32 texts in a request to `/v1/embeddings`, all-MiniLM-L6-v2, as installed.

    LitServe and a loop have the same weights in sentence-transformers, whose answers are the right ones for all.
    """
    records, model = payload.text_records(_TEXTS), _model(session, "minilm-texts")
    work = Work("texts", models.downloaded(model), records, defaults=True)
    names = _able(session, work)
    loop = partial(session.peers.bare, work, script=SOURCES / "litserve_texts" / "server.py", name="litserve_texts")
    right = loop("answers") if names else None
    with Stack() as stack:
        # The stack is idle meanwhile and not suspended: loading may take longer than Flink's heartbeats allow.
        alone = partial(loop, str(session.settings.window * 3))
        stack.start("bench", model, pooling="mean", normalize=True, maxTokens=256, **AS_INSTALLED)
        url = f"{stack.front_end('bench')}/v1/embeddings"
        endpoint = replace(stack.endpoint("bench", records), kind="embeddings", url=url)
        load = Load("closed", concurrency=in_flight)
        ours = partial(session.measure, endpoint, load, stack.roles(url), right)
        others = {"sentence-transformers in a loop": alone} if names else {}
        return session.compare(ours, others | _peers(session, stack, work, in_flight, right))


@dataclass(frozen=True)
class Case:
    """A job of our server, and the load on it.

    Attributes:
        model: Folder of the model.
        records: The different requests.
        in_flight: Requests in flight.
        settings: Keys of the job.
        workers: Processes of the front end that is asked over HTTP; 0 for requests in pipelines of the native client.
        warm_up: Further seconds before the measurement.
    """

    model: Path
    records: list[Record]
    in_flight: int
    settings: dict[str, Any]
    workers: int = 0
    warm_up: float = 0.0

    def against(self, session: BenchSession, name: str, **changes: Any) -> Measurement:
        """Compare the case with a changed one of that name."""
        other = replace(self, **changes)
        with Stack() as stack:
            run = partial(self._measure, session, stack, "ours")
            return session.compare(run, {name: partial(other._measure, session, stack, "other")})

    def _measure(self, session: BenchSession, stack: Stack, job: str) -> Measurement:
        stack.start(job, self.model, **self.settings)
        if self.workers:
            return over_network(session, stack, job, self.records, self.in_flight, workers=self.workers)
        settings = replace(session.settings, warm_up=session.settings.warm_up + self.warm_up)
        load = Load("pipelined", "sync", self.in_flight, check_every=16)
        return replace(session, settings=settings).measure(stack.endpoint(job, self.records), load, stack.roles())


def classes_http(session: BenchSession) -> Measurement:
    """Measure JPEG files to all 1,000 values as JSON over HTTP, 8 in flight, against those to the best class."""
    settings = {"threadPerModel": session.cores}
    case = Case(_model(session, "mobilenet"), _images(), IN_FLIGHT, settings, workers=1)
    return case.against(session, "best class", settings=settings | _BEST)


def workers(session: BenchSession) -> Measurement:
    """Measure a vector of 24,576 floats as JSON over HTTP, 32 in flight: a front end of two processes against one.

    The front end is the limit there: the model returns the first number.
    """
    records = payload.random_records("x", (24_576,), "float32")
    case = Case(_model(session, "noop"), records, HTTP_IN_FLIGHT, {}, workers=2)
    return case.against(session, "workers: 1", workers=1)


def backlog(session: BenchSession) -> Measurement:
    """Measure throughput with 100,000 waiting requests, which the warm-up sends, against 512."""
    waiting, settings = session.settings.backlog, {"maxBatchSize": _LARGE_BATCH}
    case = Case(_model(session, "mlp"), _vectors(), waiting, settings, warm_up=waiting / 8_000)
    return case.against(session, "no backlog", in_flight=PIPELINE, warm_up=0.0) | {"waiting": waiting}


def handler(session: BenchSession, kind: str) -> Measurement:
    """Measure a handler that passes everything on, against the bare engine: small vectors or JPEG files, pipelined."""
    case = Case(_model(session, "mlp"), _vectors(), PIPELINE, {"maxBatchSize": _LARGE_BATCH})
    if kind == "jpeg":
        case = Case(_model(session, "mobilenet"), _images(), 4 * IN_FLIGHT, {"modelParallelism": session.cores})
    return replace(case, model=models.handled(case.model)).against(session, "bare engine", model=case.model)


def lengths(session: BenchSession, name: str) -> Measurement:
    """Measure texts of different lengths, as token ids, 64 in flight: padded, against batches of equal lengths only."""
    records, settings = payload.token_records(), {"maxBatchSize": _TEXTS_IN_FLIGHT, "pooling": "mean"}
    padded = settings | {"padding": dict.fromkeys(records[0], 0)}
    case = Case(_model(session, name), records, _TEXTS_IN_FLIGHT, padded)
    return case.against(session, "equal lengths", settings=settings)


def vector_latency(session: BenchSession) -> Measurement:
    """Measure the latency of a vector of 64 floats, one in flight, synchronous client."""
    with Stack() as stack:
        stack.start("vector", _model(session, "mlp"))
        endpoint = stack.endpoint("vector", _vectors())
        load = Load("closed", "sync", 1)
        return {"ours": [session.measure(endpoint, load, stack.roles()) for _ in range(session.settings.rounds)]}


def vector_pipelined(session: BenchSession) -> Measurement:
    """Measure a vector of 64 floats, 1,024 in flight, against Mosec with as many connections as suit Mosec best."""
    model = _model(session, "mlp")
    works = {f"{copies}x1": Work("vector", model, _vectors(), copies, 1) for copies in (1, session.cores)}
    with Stack() as stack:

        def serve(layout: str) -> None:
            # One TaskManager per copy; copies in one process share Python's lock.
            settings = {"modelParallelism": works[layout].workers, "slotsPerTaskManager": 1}
            stack.start("vector", model, maxBatchSize=_LARGE_BATCH, **settings)

        def ours() -> Measurement:
            load = Load("pipelined", "sync", 2 * PIPELINE, check_every=16)
            return session.measure(stack.endpoint("vector", _vectors()), load, stack.roles())

        tries = {
            f"{layout}, {in_flight} connections": partial(peer, session, stack, "mosec", work, in_flight)
            for layout, work in works.items()
            for in_flight in (HTTP_IN_FLIGHT, 4 * HTTP_IN_FLIGHT)
        }
        return session.compare_best(works, serve, ours, {"mosec": tries} if "mosec" in session.settings.peers else {})


def scaling(session: BenchSession) -> Measurement:
    """Measure throughput over task slots, with a model that sleeps 50 ms and one record per batch."""
    points = []
    for each, group in groupby(session.settings.slots, key=lambda slots: slots[1]):
        with Stack() as stack:
            for slots, _ in group:
                job = f"sleep-{slots}"
                settings = {"modelParallelism": slots, "slotsPerTaskManager": each, "maxBatchSize": 1}
                stack.start(job, _model(session, "sleep"), **settings)
                endpoint = stack.endpoint(job, payload.random_records("x", (1,), "float32"))
                result = session.measure(endpoint, Load("closed", "async", 4 * slots))
                points.append({"slots": slots, "taskmanagers": len(stack.roles()["TaskManager"]), "result": result})
                session.report(f"  {slots} slots: {result['rate']:.1f}/s")
    first = points[0]["result"]["rate"] / points[0]["slots"]  # type: ignore[index]
    for point in points:
        point["of_linear"] = round(point["result"]["rate"] / (first * point["slots"]), 4)  # type: ignore[index]
    return {"points": points, "ideal_per_slot": 1000 / models.SLEEP_MS}


def start(session: BenchSession) -> Measurement:
    """Measure the time from cluster-serving-start on a stopped machine to the first answer, with a small model."""
    times, model = [], _model(session, "mlp")
    for _ in range(session.settings.rounds):
        with Stack() as stack:
            begun = time.perf_counter()
            command = stack.start("vector", model)
            asyncio.run(references(stack.endpoint("vector", _vectors()[:1])))
            times.append({"command_s": round(command, 2), "first_answer_s": round(time.perf_counter() - begun, 2)})
    return {"times": times}


def update(session: BenchSession) -> Measurement:
    """Measure what clients notice when a loaded server gets a new version of its model, 8 in flight.

    The images are those of `images`. The job is asked over HTTP, and then by the asyncio client; Ray Serve over HTTP,
    with each way of updating that its documentation has for one machine.
    """
    old, new = (
        Work("jpeg", _model(session, name), _images(), session.cores, precision="float32")
        for name in ("mobilenet", "mobilenet-2")
    )
    before, after = map(session.peers.right, (old, new))
    runs = SteadyRuns(session, IN_FLIGHT)

    def ours() -> None:
        settings = {"threadPerModel": session.cores, "inferencePrecision": "float32", **_BEST}
        with Stack() as stack:
            stack.start("images", old.model, **settings)
            http, native = _doors(stack, "images", old.records)
            runs.measure(_OURS, http, (before, after), lambda: stack.update("images", new.model, **settings))
            runs.measure(_NATIVE, native, (after, before), lambda: stack.update("images", old.model, **settings))

    def theirs(name: str, way: str) -> None:
        with session.peers.serving(name, old) as server:
            runs.measure(f"{name}, {way}", server.endpoint, (before, after), partial(server.update, way, new.model))

    for _ in range(session.settings.rounds):
        ours()
        for name in session.settings.peers:
            for way in PEERS[name].updates:
                with runs.of(f"{name}, {way}"):
                    theirs(name, way)
    return runs.compared(_OURS)


def machine_dies(session: BenchSession) -> Measurement:
    """Measure what clients notice when one of two machines that serve a small model dies, 8 in flight.

    A machine of Cluster Serving is a TaskManager with one slot; one of Ray Serve is a replica. Its process is killed
    with SIGKILL, in the middle of the load. The job is asked over HTTP and by the asyncio client, Ray Serve over HTTP.
    """
    work = Work("vector", _model(session, "mlp"), _vectors(), 2)
    versions = session.peers.right(work), list[Array]()
    runs = SteadyRuns(session, IN_FLIGHT)

    def ours(name: str) -> None:
        with Stack() as stack:
            stack.start("vector", work.model, modelParallelism=2, slotsPerTaskManager=1)
            endpoint = _doors(stack, "vector", work.records)[name == _NATIVE]
            runs.measure(name, endpoint, versions, lambda: os.kill(stack.roles()["TaskManager"][0], signal.SIGKILL))

    for _ in range(session.settings.rounds):
        ours(_OURS)
        ours(_NATIVE)
        for name in session.settings.peers:
            if PEERS[name].replica:
                with runs.of(name), session.peers.serving(name, work) as server:
                    runs.measure(name, server.endpoint, versions, server.kill_replica)
    return runs.compared(_OURS)


def answers_in_pieces(session: BenchSession) -> Measurement:
    """Measure the time from the making of a piece to its arrival, with a handler that makes one every 10 ms."""
    folder = session.folder / "models" / "stamps"
    folder.mkdir(parents=True, exist_ok=True)
    pieces.save_handler(folder)
    runs: list[Measurement] = []

    async def measured(stack: Stack, streams: int) -> None:
        endpoint, url = stack.endpoint("stamps", []), stack.front_end("stamps")
        async with AsyncInputQueue(url=endpoint.url, name="stamps") as queue, httpx.AsyncClient() as client:
            for name, stream in (
                (_NATIVE, lambda: pieces.from_queue(queue)),
                (f"{_OURS}, /v1/completions", lambda: pieces.from_http(client, url, "stamps")),
            ):
                result = await pieces.delays(stream, streams, session.settings.rounds)
                runs.append({"client": name, "streams": streams, **result})

    with Stack() as stack:
        stack.start("stamps", folder, maxBatchSize=_PIECES_AT_ONCE)
        for streams in (1, _PIECES_AT_ONCE):
            asyncio.run(measured(stack, streams))
    return {"runs": runs}


def costs(session: BenchSession) -> Measurement:
    """Measure the costs of a request over number, size and clients, with a model that does nothing."""
    s, small = session.settings, payload.random_records("x", (25,), "float32")
    with Stack() as stack:
        stack.start("noop", _model(session, "noop"))
        roles = stack.roles()

        def point(x: int, records: list[Record], load: Load, processes: int = 1) -> Measurement:
            endpoint = stack.endpoint("noop", records)
            return {"x": x, "result": session.measure(endpoint, load, roles, processes=processes)}

        def pipelined(depth: int, requests: int | None = None) -> Load:
            return Load("pipelined", "sync", depth, requests=requests, check_every=16)

        point(0, small, pipelined(PIPELINE))
        return {
            "requests": [point(count, small, pipelined(min(PIPELINE, count), count)) for count in s.request_counts],
            "bytes": [
                # The requests in flight must fit into Redis.
                point(
                    size,
                    payload.random_records("x", (size // 4,), "float32", 4),
                    pipelined(max(2, min(PIPELINE, 64_000_000 // size))),
                )
                for size in s.payload_bytes
            ],
            "clients": [
                point(clients, small, Load("closed", "sync", clients, check_every=4), processes=min(clients, 4))
                for clients in s.clients
            ],
        }


class Row(NamedTuple):
    """A row: title of its section, function that measures, and name of its table in bench/report.py."""

    title: str
    measure: Callable[[BenchSession], Measurement]
    table: str = "compared"


ROWS = {
    "images": Row("JPEG, 8 in flight", images),
    "images_float32": Row("JPEG in float32, 8 in flight", partial(images, precision="float32")),
    "tensors": Row("Raw tensors, 8 in flight", partial(images, kind="tensor")),
    "tensors_float32": Row("Raw tensors in float32, 8 in flight", partial(images, kind="tensor", precision="float32")),
    "vector_latency": Row("Small vector, one in flight", vector_latency, "latency"),
    "vector_pipelined": Row("Small vector, pipelined", vector_pipelined),
    "images_http": Row("JPEG over HTTP, 8 in flight", partial(images, over_http=True)),
    "images_http_float32": Row(
        "JPEG over HTTP in float32, 8 in flight", partial(images, precision="float32", over_http=True)
    ),
    "image_latency_http": Row("JPEG over HTTP, one in flight", partial(images, in_flight=1, over_http=True)),
    "resnet_http": Row("JPEG to ResNet50V2 over HTTP, 8 in flight", partial(images, over_http=True, network="resnet")),
    "resnet_latency_http": Row(
        "JPEG to ResNet50V2 over HTTP, one in flight", partial(images, in_flight=1, over_http=True, network="resnet")
    ),
    "resnet": Row("JPEG to ResNet50V2, 8 in flight", partial(images, network="resnet")),
    "classes_http": Row("JPEG to 1,000 values as JSON over HTTP, 8 in flight", classes_http),
    "vector_http": Row("Small vector over HTTP, 32 in flight", partial(served, in_flight=HTTP_IN_FLIGHT)),
    "vector_http_128": Row("Small vector over HTTP, 128 in flight", partial(served, in_flight=4 * HTTP_IN_FLIGHT)),
    "rows_1": Row("A small vector over HTTP, 8 in flight", served),
    "rows_16": Row("16 small vectors over HTTP, 8 in flight", partial(served, rows=16)),
    "rows_256": Row("256 small vectors over HTTP, 8 in flight", partial(served, rows=256)),
    "vector_grpc": Row("Small vector over gRPC, 32 in flight", partial(served, in_flight=HTTP_IN_FLIGHT, grpc=True)),
    "rows_256_grpc": Row("256 small vectors over gRPC, 8 in flight", partial(served, rows=256, grpc=True)),
    "as_installed": Row("JPEG over HTTP, 8 in flight, as installed", partial(served, kind="jpeg", as_installed=True)),
    "as_installed_vector": Row(
        "Small vector over HTTP, as installed", partial(served, in_flight=HTTP_IN_FLIGHT, as_installed=True)
    ),
    "as_installed_256": Row(
        "256 small vectors over HTTP, 8 in flight, as installed", partial(served, rows=256, as_installed=True)
    ),
    "texts": Row("Embeddings of 32 texts, 8 in flight, as installed", embeddings),
    "text_latency": Row("Embeddings of 32 texts, one in flight, as installed", partial(embeddings, in_flight=1)),
    "workers": Row("24,576 numbers as JSON over HTTP, front end with workers: 2", workers),
    "scaling": Row("Scaling over task slots, with a model that sleeps 50 ms", scaling, "scaling"),
    "backlog": Row("A long queue", backlog, "backlog"),
    "start": Row("From a stopped machine to the first answer", start, "start"),
    "repository": Row("Fifty small models in one job, against a job of one", repository, "repository"),
    "update": Row("A new version of the model under load, 8 in flight", update, "update"),
    "machine_dies": Row("One of two machines dies under load, 8 in flight", machine_dies, "machine_dies"),
    "handler": Row("A handler that passes small vectors on, 512 in flight", partial(handler, kind="vector")),
    "handler_images": Row("A handler that passes JPEG on, 32 in flight", partial(handler, kind="jpeg")),
    "lengths": Row("Texts of different lengths, small encoder", partial(lengths, name="encoder")),
    "lengths_minilm": Row("Texts of different lengths, encoder as MiniLM", partial(lengths, name="minilm")),
    "pieces": Row("From the making of a piece of an answer to its arrival", answers_in_pieces, "pieces"),
    "score": Row("1,000,000 rows of a Parquet file", partial(files, kind="vector")),
    "score_images": Row("4,000 JPEG files of a folder", partial(files, kind="jpeg")),
    "beside_score": Row("JPEG at random times, beside `score --job`", beside),
    "flink": Row("Vectors in a Flink job: a function of SQL", flink),
    "costs": Row("What a request costs", costs, "costs"),
}
"""All rows, in the order in which they are measured."""


def _model(session: BenchSession, name: str) -> Path:
    return models.ensure(session.folder / "models", name)


def _vectors() -> list[Record]:
    return payload.random_records("x", (64,), "float32")


def _images() -> list[Record]:
    return payload.image_records("x", "synthetic")


def _layouts(session: BenchSession, work: Work) -> dict[str, Work]:
    """Return some work in each layout: one copy of the model with all cores, or a copy per core."""
    counts = ((1, session.cores), (session.cores, 1))
    return {f"{copies}x{threads}": replace(work, workers=copies, threads=threads) for copies, threads in counts}


def _able(session: BenchSession, work: Work) -> list[str]:
    """Return the chosen peers that are set up for some work."""
    return [name for name in session.settings.peers if PEERS[name].encoding(work)]


def _peers(
    session: BenchSession, stack: Stack, work: Work, in_flight: int, right: Sequence[Array] | None = None
) -> dict[str, Run]:
    """Return what measures each peer that can do the work."""
    return {name: partial(peer, session, stack, name, work, in_flight, right) for name in _able(session, work)}


def _doors(stack: Stack, job: str, records: Sequence[Record]) -> tuple[Endpoint, Endpoint]:
    """Return the address of a job over HTTP, and that for the asyncio client."""
    native = stack.endpoint(job, records)
    return replace(native, kind="rows", url=f"{stack.front_end(job)}/v1/models/{job}:predict"), native


def over_network(
    session: BenchSession,
    stack: Stack,
    job: str,
    records: Sequence[Record],
    in_flight: int,
    kind: str = "rows",
    path: str = "",
    workers: int = 1,
    batched: bool = False,
) -> Measurement:
    """Measure a job through the front end, over HTTP, or over gRPC if that is the kind."""
    url = stack.front_end(job, workers)
    url_of_job = url + (path or f"/v1/models/{job}:predict")
    endpoint = replace(stack.endpoint(job, records), kind=kind, url=url_of_job, batched=batched)
    if kind == "grpc":
        endpoint = over_grpc(endpoint, f"{stack.front_end(job, workers, 'grpc')}/{job}")
    return session.measure(endpoint, Load("closed", concurrency=in_flight), stack.roles(url))


def bare(session: BenchSession, stack: Stack, work: Work, batch: int) -> Measurement:
    """Measure the bare loop, while the stack is suspended."""
    with stack.frozen():
        return dict(session.peers.bare(work, str(session.settings.window * 3), str(batch)))


def peer(
    session: BenchSession, stack: Stack, name: str, work: Work, in_flight: int, right: Sequence[Array] | None = None
) -> Measurement:
    """Measure a peer, while the stack is suspended. Without the `right` answers, the bare loop gives them."""
    with session.peers.serving(name, work) as server, stack.frozen():
        right = session.peers.right(work) if right is None else right
        return session.measure(server.endpoint, Load("closed", concurrency=in_flight), {name: [server.pid]}, right)
