"""The rows of the benchmark: each one measures one claim, and returns the results for the file."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import httpx

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.generator import Load
from cluster_serving.bench.load.payload import Record
from cluster_serving.bench.load.target import references
from cluster_serving.bench.suite import models, peers, pieces
from cluster_serving.bench.suite.peers import PEERS, Work
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
_PIECES_AT_ONCE = 16
_BARE_BATCHES = (1, 8)
_OURS, _NATIVE = "Cluster Serving", "Cluster Serving, Python client"
_TENSORS = "Cluster Serving, KServe's binary tensors"


def large_inputs(session: BenchSession, kind: str, precision: str = "") -> Measurement:
    """Measure images of 224x224 to the best class, 8 in flight, asyncio client, each server in its best layout.

    The job is compared with the bare loop. If the images are JPEG files (`jpeg`) and not raw float32 (`tensor`), it is
    also compared with the peers. With a `precision`, all servers compute in it.
    """
    if kind == "jpeg":
        records, servers = payload.image_records("x", "synthetic"), session.settings.peers
    else:
        records, servers = payload.random_records("x", (224, 224, 3), "float32", scale=255), ()
    work = Work(kind, _model(session, "mobilenet"), records, 1, 1, precision=precision)
    layouts = _layouts(session, work)
    right = peers.bare_answers(work, session.folder / "logs")
    with Stack() as stack:
        serve = partial(_serve_images, stack, layouts)

        def ours() -> Measurement:
            # The references are its own single answers: in bfloat16 a network of fixed sizes rounds differently.
            return session.measure(stack.endpoint("images", records), Load("closed", "async", IN_FLIGHT), stack.roles())

        tries: dict[str, dict[str, Run]] = {
            "bare loop": {
                f"{name} batch {batch}": partial(bare, session, stack, work, batch)
                for name, work in layouts.items()
                for batch in _BARE_BATCHES
            },
            "bare loop, compiled for single records": {
                f"{name} batch 1": partial(bare, session, stack, replace(work, single=True), 1)
                for name, work in layouts.items()
            },
        }
        tries |= {server: _of_peer(session, stack, server, layouts, IN_FLIGHT, right) for server in servers}
        return session.compare_best(layouts, serve, ours, tries) | {"bytes": payload.size(records[0])}


def images_http(session: BenchSession, in_flight: int = IN_FLIGHT, precision: str = "") -> Measurement:
    """Measure JPEG files to the best class over HTTP, in the same JSON to every server, each in its best layout.

    With a `precision`, all servers compute in it.
    """
    records = payload.image_records("x", "synthetic")
    work = Work("jpeg", _model(session, "mobilenet"), records, 1, 1, precision=precision, json=True)
    layouts = _layouts(session, work)
    right = peers.bare_answers(work, session.folder / "logs")
    with Stack() as stack:

        def ours() -> Measurement:
            return _over_http(session, stack, "images", records, in_flight)

        tries = {
            server: _of_peer(session, stack, server, layouts, in_flight, right) for server in session.settings.peers
        }
        return session.compare_best(layouts, partial(_serve_images, stack, layouts), ours, tries)


def classes_http(session: BenchSession) -> Measurement:
    """Measure JPEG files to all 1,000 values as JSON over HTTP, 8 in flight, against those to the best class."""
    records = payload.image_records("x", "synthetic")
    with Stack() as stack:

        def run(job: str, **settings: object) -> Measurement:
            stack.start(job, _model(session, "mobilenet"), threadPerModel=session.cores, **settings)
            return _over_http(session, stack, job, records, IN_FLIGHT)

        return session.compare(lambda: run("values"), {"best class": lambda: run("best", postProcessing="topN(1)")})


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


def vector_http(session: BenchSession, in_flight: int = HTTP_IN_FLIGHT, rows: int = 1) -> Measurement:
    """Measure vectors of 64 floats over HTTP, one or several in a request: the front end against the peers.

    JSON goes to every server but Triton, which gets binary tensors, as does Cluster Serving in a second row. Several in
    a request go to those peers alone that compute them together.
    """
    batched = rows > 1
    records = payload.random_records("x", (rows, 64) if batched else (64,), "float32")
    work = Work("vector", _model(session, "mlp"), records, 1, 1, rows=rows)
    names = [name for name in session.settings.peers if PEERS[name].takes_rows or not batched]
    with Stack() as stack:
        stack.start("vector", work.model, **({"maxBatchSize": _LARGE_BATCH} if batched else {}))
        ours = partial(_over_http, session, stack, "vector", records, in_flight, batched=batched)
        others = {name: partial(peer, session, stack, name, work, in_flight) for name in names}
        tensors = partial(ours, kind="v2", path="/v2/models/vector/infer")
        return session.compare(ours, others | {_TENSORS: tensors})


def as_installed(session: BenchSession) -> Measurement:
    """Measure JPEG files to the best class over HTTP, in the same JSON, 8 in flight, without a key for the layout.

    Cluster Serving measures its own; the peers have one copy of the model with all cores, as engines do by themselves.
    """
    records = payload.image_records("x", "synthetic")
    work = Work("jpeg", _model(session, "mobilenet"), records, 1, session.cores, json=True)
    with Stack() as stack:
        stack.start("images", work.model, postProcessing="topN(1)", **AS_INSTALLED)
        ours = partial(_over_http, session, stack, "images", records, IN_FLIGHT)
        others = {name: partial(peer, session, stack, name, work, IN_FLIGHT) for name in session.settings.peers}
        return session.compare(ours, others)


def workers(session: BenchSession) -> Measurement:
    """Measure a vector of 24,576 floats as JSON over HTTP, 32 in flight: a front end of two processes against one.

    The front end is the limit there: the model returns the first number.
    """
    records = payload.random_records("x", (24_576,), "float32")
    with Stack() as stack:
        stack.start("noop", _model(session, "noop"))

        def run(count: int) -> Measurement:
            return _over_http(session, stack, "noop", records, HTTP_IN_FLIGHT, workers=count)

        return session.compare(partial(run, 2), {"workers: 1": partial(run, 1)})


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


def backlog(session: BenchSession) -> Measurement:
    """Measure throughput with 100,000 waiting requests against 512."""
    waiting = session.settings.backlog
    with Stack() as stack:
        stack.start("vector", _model(session, "mlp"), maxBatchSize=_LARGE_BATCH)
        endpoint = stack.endpoint("vector", _vectors(), timeout=120)

        def run(depth: int, warm_up: float) -> Measurement:
            slower = replace(session.settings, warm_up=warm_up)
            load = Load("pipelined", "sync", depth, check_every=16)
            return replace(session, settings=slower).measure(endpoint, load, stack.roles())

        usual = session.settings.warm_up
        # The warm-up fills the queue.
        return session.compare(
            lambda: run(waiting, usual + waiting / 8_000), {"no backlog": lambda: run(PIPELINE, usual)}
        ) | {"waiting": waiting}


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

    The images are those of `large_inputs`. The job is asked over HTTP, and then by the asyncio client; Ray Serve over
    HTTP, with each way of updating that its documentation has for one machine.
    """
    records = payload.image_records("x", "synthetic")
    old, new = (
        Work("jpeg", _model(session, name), records, session.cores, 1, precision="float32")
        for name in ("mobilenet", "mobilenet-2")
    )
    folder = session.folder / "logs"
    before, after = (peers.bare_answers(work, folder) for work in (old, new))
    runs = SteadyRuns(session, IN_FLIGHT)

    def ours() -> None:
        settings = {"threadPerModel": session.cores, "postProcessing": "topN(1)", "inferencePrecision": "float32"}
        with Stack() as stack:
            stack.start("images", old.model, **settings)
            native = stack.endpoint("images", records)
            http = replace(native, kind="rows", url=f"{stack.front_end('images')}/v1/models/images:predict")
            runs.measure(_OURS, http, (before, after), lambda: stack.update("images", new.model, **settings))
            runs.measure(_NATIVE, native, (after, before), lambda: stack.update("images", old.model, **settings))

    def theirs(name: str, way: str) -> None:
        with peers.serving(name, old, session.environments, folder, session.report) as server:
            change = partial(server.update, way, new.model)
            runs.measure(f"{name}, {way}", server.endpoint, (before, after), change)

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
    work, folder = Work("vector", _model(session, "mlp"), _vectors(), 2, 1), session.folder / "logs"
    right = peers.bare_answers(work, folder)
    runs = SteadyRuns(session, IN_FLIGHT)

    def ours(name: str) -> None:
        with Stack() as stack:
            stack.start("vector", work.model, modelParallelism=2, slotsPerTaskManager=1)
            endpoint = stack.endpoint("vector", work.records)
            if name == _OURS:
                url = f"{stack.front_end('vector')}/v1/models/vector:predict"
                endpoint = replace(endpoint, kind="rows", url=url)
            runs.measure(name, endpoint, (right, []), lambda: os.kill(stack.roles()["TaskManager"][0], signal.SIGKILL))

    for _ in range(session.settings.rounds):
        ours(_OURS)
        ours(_NATIVE)
        for name in session.settings.peers:
            if PEERS[name].replica:
                with runs.of(name), peers.serving(name, work, session.environments, folder, session.report) as server:
                    runs.measure(name, server.endpoint, (right, []), server.kill_replica)
    return runs.compared(_OURS)


def handler(session: BenchSession, kind: str) -> Measurement:
    """Measure a handler that passes everything on, against the bare engine: small vectors or JPEG files, pipelined."""
    settings: dict[str, object]
    if kind == "vector":
        model, records, depth, settings = _model(session, "mlp"), _vectors(), PIPELINE, {"maxBatchSize": _LARGE_BATCH}
    else:
        model, records, depth = _model(session, "mobilenet"), payload.image_records("x", "synthetic"), 4 * IN_FLIGHT
        settings = {"modelParallelism": session.cores}
    folder = models.handled(model)
    with Stack() as stack:

        def run(job: str, path: Path) -> Measurement:
            stack.start(job, path, **settings)
            load = Load("pipelined", "sync", depth, check_every=16)
            return session.measure(stack.endpoint(job, records), load, stack.roles())

        return session.compare(lambda: run("handled", folder), {"bare engine": lambda: run("bare", model)})


def lengths(session: BenchSession, name: str) -> Measurement:
    """Measure texts of different lengths, as token ids, 64 in flight: padded, against batches of equal lengths only."""
    model, records = _model(session, name), payload.token_records()
    with Stack() as stack:

        def run(job: str, **settings: object) -> Measurement:
            stack.start(job, model, maxBatchSize=_TEXTS_IN_FLIGHT, **settings)
            load = Load("pipelined", "sync", _TEXTS_IN_FLIGHT, check_every=16)
            return session.measure(stack.endpoint(job, records), load, stack.roles())

        return session.compare(
            lambda: run("padded", padding={"input_ids": 0, "attention_mask": 0}),
            {"equal lengths": lambda: run("equal")},
        )


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
            endpoint = stack.endpoint("noop", records, timeout=120)
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


ROWS: dict[str, Callable[[BenchSession], Measurement]] = {
    "images": partial(large_inputs, kind="jpeg"),
    "images_float32": partial(large_inputs, kind="jpeg", precision="float32"),
    "tensors": partial(large_inputs, kind="tensor"),
    "tensors_float32": partial(large_inputs, kind="tensor", precision="float32"),
    "vector_latency": vector_latency,
    "vector_pipelined": vector_pipelined,
    "images_http": images_http,
    "images_http_float32": partial(images_http, precision="float32"),
    "image_latency_http": partial(images_http, in_flight=1),
    "classes_http": classes_http,
    "vector_http": vector_http,
    "vector_http_128": partial(vector_http, in_flight=4 * HTTP_IN_FLIGHT),
    "rows_16": partial(vector_http, in_flight=IN_FLIGHT, rows=16),
    "rows_256": partial(vector_http, in_flight=IN_FLIGHT, rows=256),
    "as_installed": as_installed,
    "workers": workers,
    "scaling": scaling,
    "backlog": backlog,
    "start": start,
    "update": update,
    "machine_dies": machine_dies,
    "handler": partial(handler, kind="vector"),
    "handler_images": partial(handler, kind="jpeg"),
    "lengths": partial(lengths, name="encoder"),
    "lengths_minilm": partial(lengths, name="minilm"),
    "pieces": answers_in_pieces,
    "costs": costs,
}
"""All rows, in the order in which they are measured."""


def _model(session: BenchSession, name: str) -> Path:
    return models.ensure(session.folder / "models", name)


def _vectors() -> list[Record]:
    return payload.random_records("x", (64,), "float32")


def _layouts(session: BenchSession, work: Work) -> dict[str, Work]:
    """Return some work in each layout: one copy of the model with all cores, or a copy per core."""
    counts = ((1, session.cores), (session.cores, 1))
    return {f"{copies}x{threads}": replace(work, workers=copies, threads=threads) for copies, threads in counts}


def _serve_images(stack: Stack, layouts: Mapping[str, Work], name: str) -> None:
    work = layouts[name]
    settings = {"modelParallelism": work.workers, "threadPerModel": work.threads, "postProcessing": "topN(1)"}
    stack.start("images", work.model, inferencePrecision=work.precision, **settings)


def _of_peer(
    session: BenchSession, stack: Stack, name: str, layouts: Mapping[str, Work], in_flight: int, right: Sequence[Array]
) -> dict[str, Run]:
    """Return what measures a peer, by layout."""
    return {layout: partial(peer, session, stack, name, work, in_flight, right) for layout, work in layouts.items()}


def _over_http(
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
    """Measure a job through the front end."""
    url = stack.front_end(job, workers)
    url_of_job = url + (path or f"/v1/models/{job}:predict")
    endpoint = replace(stack.endpoint(job, records), kind=kind, url=url_of_job, batched=batched)
    return session.measure(endpoint, Load("closed", concurrency=in_flight), stack.roles(url))


def bare(session: BenchSession, stack: Stack, work: Work, batch: int) -> Measurement:
    """Measure the bare loop, while the stack is suspended."""
    with stack.frozen():
        return peers.bare_rate(work, session.folder / "logs", session.settings.window * 3, batch)


def peer(
    session: BenchSession, stack: Stack, name: str, work: Work, in_flight: int, right: Sequence[Array] | None = None
) -> Measurement:
    """Measure a peer, while the stack is suspended. Without the `right` answers, the bare loop gives them."""
    folder = session.folder / "logs"
    with peers.serving(name, work, session.environments, folder, session.report) as server, stack.frozen():
        right = peers.bare_answers(work, folder) if right is None else right
        load = Load("closed", concurrency=in_flight)
        return session.measure(server.endpoint, load, {name: [server.pid]}, right)
