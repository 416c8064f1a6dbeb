"""The rows of the benchmark: each one measures one claim, and returns the results for the file."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.generator import Load
from cluster_serving.bench.load.payload import Record
from cluster_serving.bench.load.target import references
from cluster_serving.bench.suite import models, peers
from cluster_serving.bench.suite.peers import Work
from cluster_serving.bench.suite.session import Measurement, Session, best, best_peers
from cluster_serving.bench.suite.stack import Stack

IN_FLIGHT = 8
HTTP_IN_FLIGHT = 32
PIPELINE = 512
# A model this small computes 128 vectors as fast as 32.
_LARGE_BATCH = 128
_BARE_BATCHES = (1, 8)
_SINGLE = "bare loop, compiled for single records"


def images(session: Session) -> Measurement:
    """Measure JPEG 224x224 to the best class, 8 in flight, asyncio client, against the bare loop and the peers."""
    return _against_bare(session, "jpeg", session.settings.peers)


def images_float32(session: Session) -> Measurement:
    """Measure JPEG 224x224 to the best class as `images`, computed in float32 by all servers."""
    return _against_bare(session, "jpeg", session.settings.peers, "float32")


def tensors(session: Session) -> Measurement:
    """Measure raw float32 224x224x3 tensors, 8 in flight, asyncio client, against the bare loop."""
    return _against_bare(session, "tensor", ())


def tensors_float32(session: Session) -> Measurement:
    """Measure raw tensors as `tensors`, computed in float32 by the job and by the bare loop."""
    return _against_bare(session, "tensor", (), "float32")


def vector_latency(session: Session) -> Measurement:
    """Measure the latency of a vector of 64 floats, one in flight, synchronous client."""
    with Stack() as stack, stack.running("vector", _model(session, "mlp")):
        endpoint = stack.endpoint("vector", _vectors())
        load = Load("closed", "sync", 1)
        return {"ours": [session.measure(endpoint, load, stack.roles()) for _ in range(session.settings.rounds)]}


def vector_pipelined(session: Session) -> Measurement:
    """Measure a vector of 64 floats, 1,024 in flight, against Mosec with as many connections as suit Mosec best."""
    model = _model(session, "mlp")
    works = {f"{copies}x1": Work("vector", model, _vectors(), copies, 1) for copies in (1, session.cores)}
    with Stack() as stack, ExitStack() as jobs:

        def ours() -> Measurement:
            load = Load("pipelined", "sync", 2 * PIPELINE, check_every=16)
            return session.measure(stack.endpoint("vector", _vectors()), load, stack.roles())

        def serve(layout: str) -> None:
            jobs.close()
            # One TaskManager per copy; copies in one process share Python's lock.
            settings = {"modelParallelism": works[layout].workers, "slotsPerTaskManager": 1}
            jobs.enter_context(stack.running("vector", model, maxBatchSize=_LARGE_BATCH, **settings))

        def candidate(layout: str) -> Measurement:
            serve(layout)
            return ours()

        layout = best({name: partial(candidate, name) for name in works}, session.report)
        serve(layout)
        tries = {
            peer: {
                f"{name}, {in_flight} connections": partial(_peer, session, stack, peer, work, in_flight)
                for name, work in works.items()
                for in_flight in (HTTP_IN_FLIGHT, 4 * HTTP_IN_FLIGHT)
            }
            for peer in ("mosec",)
            if peer in session.settings.peers
        }
        others, layouts = best_peers(tries, session.report)
        return session.compare(ours, others) | {"layouts": {"ours": layout} | layouts}


def vector_http(session: Session) -> Measurement:
    """Measure a vector of 64 floats over HTTP, 32 in flight: the front end against the peers."""
    work = Work("vector", _model(session, "mlp"), _vectors(), 1, 1)
    with Stack() as stack, stack.running("vector", work.model):
        url = stack.front_end("vector")
        endpoint = replace(stack.endpoint("vector", _vectors()), kind="predict", url=f"{url}/predict")
        ours = partial(session.measure, endpoint, Load("closed", concurrency=HTTP_IN_FLIGHT), stack.roles(url))
        others = {name: partial(_peer, session, stack, name, work, HTTP_IN_FLIGHT) for name in session.settings.peers}
        results = session.compare(ours, others)
        v2 = replace(endpoint, kind="v2", url=f"{url}/v2/models/vector/infer")
        results["v2"] = session.measure(v2, Load("closed", concurrency=HTTP_IN_FLIGHT), stack.roles(url))
        return results


def scaling(session: Session) -> Measurement:
    """Measure throughput over task slots, with a model that sleeps 50 ms and one record per batch."""
    points = []
    for each, group in groupby(session.settings.slots, key=lambda slots: slots[1]):
        with Stack() as stack:
            for slots, _ in group:
                job = f"sleep-{slots}"
                settings = {"modelParallelism": slots, "slotsPerTaskManager": each, "maxBatchSize": 1}
                with stack.running(job, _model(session, "sleep"), **settings):
                    endpoint = stack.endpoint(job, payload.random_records("x", (1,), "float32"))
                    result = session.measure(endpoint, Load("closed", "async", 4 * slots))
                    processes = len(stack.roles().get("TaskManager", ()))
                    points.append({"slots": slots, "taskmanagers": processes, "result": result})
                    session.report(f"  {slots} slots: {result['rate']:.1f}/s")
    first = points[0]["result"]["rate"] / points[0]["slots"]  # type: ignore[index]
    for point in points:
        point["of_linear"] = round(point["result"]["rate"] / (first * point["slots"]), 4)  # type: ignore[index]
    return {"points": points, "ideal_per_slot": 1000 / models.SLEEP_MS}


def backlog(session: Session) -> Measurement:
    """Measure throughput with 100,000 waiting requests against 512."""
    waiting = session.settings.backlog
    with Stack() as stack, stack.running("vector", _model(session, "mlp"), maxBatchSize=_LARGE_BATCH):
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


def start(session: Session) -> Measurement:
    """Measure the time from cluster-serving-start on a stopped machine to the first answer, with a small model."""
    times, model = [], _model(session, "mlp")
    for _ in range(session.settings.rounds):
        with Stack() as stack:
            begun = time.perf_counter()
            command = stack.start("vector", model)
            asyncio.run(references(stack.endpoint("vector", _vectors()[:1])))
            times.append({"command_s": round(command, 2), "first_answer_s": round(time.perf_counter() - begun, 2)})
            stack.stop("vector")
    return {"times": times}


def costs(session: Session) -> Measurement:
    """Measure the costs of a request over number, size and clients, with a model that does nothing."""
    s = session.settings
    curves: dict[str, list[Any]] = {"requests": [], "bytes": [], "clients": []}
    with Stack() as stack, stack.running("noop", _model(session, "noop")):
        roles = stack.roles()

        def run(records: list[Record], load: Load, processes: int = 1) -> Measurement:
            return session.measure(stack.endpoint("noop", records, timeout=120), load, roles, processes=processes)

        small = payload.random_records("x", (25,), "float32")
        run(small, Load("pipelined", "sync", PIPELINE))
        for count in s.request_counts:
            load = Load("pipelined", "sync", min(PIPELINE, count), requests=count, check_every=16)
            curves["requests"].append({"x": count, "result": run(small, load)})
        for size in s.payload_bytes:
            records = payload.random_records("x", (size // 4,), "float32", 4)
            # The requests in flight must fit into Redis.
            load = Load("pipelined", "sync", max(2, min(PIPELINE, 64_000_000 // size)), check_every=16)
            curves["bytes"].append({"x": size, "result": run(records, load)})
        for clients in s.clients:
            load = Load("closed", "sync", clients, check_every=4)
            curves["clients"].append({"x": clients, "result": run(small, load, processes=min(clients, 4))})
    return curves


ROWS: dict[str, Callable[[Session], Measurement]] = {
    row.__name__: row
    for row in (
        *(images, images_float32, tensors, tensors_float32, vector_latency, vector_pipelined, vector_http),
        *(scaling, backlog, start, costs),
    )
}
"""All rows, in the order in which they are measured."""


def _model(session: Session, name: str) -> Path:
    return models.ensure(session.folder / "models", name)


def _vectors() -> list[Record]:
    return payload.random_records("x", (64,), "float32")


def _against_bare(session: Session, kind: str, chosen: tuple[str, ...], precision: str = "") -> Measurement:
    """Measure each server and the bare loop, each with the layout that suits it best."""
    if kind == "jpeg":
        records = payload.image_records("x", "synthetic")
    else:
        records = payload.random_records("x", (224, 224, 3), "float32", scale=255)
    model = _model(session, "mobilenet")
    # Copies and threads per copy: one copy with all cores, or a copy per core.
    counts = ((1, session.cores), (session.cores, 1))
    layouts = {f"{w}x{t}": Work(kind, model, records, w, t, precision=precision) for w, t in counts}
    logs = session.folder / "logs"
    right = peers.bare_answers(next(iter(layouts.values())), logs)
    seconds = session.settings.window * 3
    loops = {
        f"{name} batch {batch}": partial(peers.bare_rate, work, logs, seconds, batch)
        for name, work in layouts.items()
        for batch in _BARE_BATCHES
    }
    singles = {
        f"{name} batch 1": partial(peers.bare_rate, replace(work, single=True), logs, seconds, 1)
        for name, work in layouts.items()
    }
    with Stack() as stack:
        jobs = ExitStack()

        def serve(name: str) -> None:
            jobs.close()
            work = layouts[name]
            settings = {"modelParallelism": work.workers, "threadPerModel": work.threads, "postProcessing": "topN(1)"}
            jobs.enter_context(
                stack.running(f"images-{name}", work.model, inferencePrecision=work.precision, **settings)
            )

        def ours(name: str) -> Measurement:
            endpoint = stack.endpoint(f"images-{name}", records)
            # The references are its own single answers: in bfloat16 a network of fixed sizes rounds differently.
            return session.measure(endpoint, Load("closed", "async", IN_FLIGHT), stack.roles())

        def candidate(name: str) -> Measurement:
            serve(name)
            return ours(name)

        with jobs:
            layout = best({name: partial(candidate, name) for name in layouts}, session.report)
            serve(layout)
            loop = best({name: partial(_frozen, stack, one) for name, one in loops.items()}, session.report)
            single = best({name: partial(_frozen, stack, one) for name, one in singles.items()}, session.report)
            others: dict[str, Callable[[], Measurement]] = {
                "bare loop": partial(_frozen, stack, loops[loop]),
                _SINGLE: partial(_frozen, stack, singles[single]),
            }
            layouts_of = {"ours": layout, "bare loop": loop, _SINGLE: single}
            tries = {
                peer: {n: partial(_peer, session, stack, peer, work, IN_FLIGHT, right) for n, work in layouts.items()}
                for peer in chosen
            }
            best_of_others, layouts_of_others = best_peers(tries, session.report)
            results = session.compare(partial(ours, layout), others | best_of_others)
    return results | {"layouts": layouts_of | layouts_of_others, "bytes": payload.size(records[0])}


def _frozen(stack: Stack, loop: Callable[[], Measurement]) -> Measurement:
    with stack.frozen():
        return loop()


def _peer(session: Session, stack: Stack, name: str, work: Work, in_flight: int, right: Any = None) -> Measurement:
    folder = session.folder / "logs"
    with peers.serving(name, work, session.folder / "venvs", folder, session.report) as (endpoint, pid), stack.frozen():
        right = peers.bare_answers(work, folder) if right is None else right
        return session.measure(endpoint, Load("closed", concurrency=in_flight), {name: [pid]}, right)
