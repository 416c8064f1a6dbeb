"""The command `cluster-serving-bench`: it sends load to a running job and reports the results."""

import asyncio
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import quote

import httpx
import redis
import typer
from rich.console import Console

from cluster_serving.bench.load import output, payload
from cluster_serving.bench.load.generator import Load, Stalled
from cluster_serving.bench.load.measure import Plan, measure
from cluster_serving.bench.load.payload import Record
from cluster_serving.bench.load.processes import roles
from cluster_serving.bench.load.result import LoadResult
from cluster_serving.bench.load.target import Endpoint, Failed, Lost, references
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.figures.stats import JobStats
from cluster_serving.protocol.keys import DEFAULT_JOB, JobKeys
from cluster_serving.protocol.redis.connection import connect, open_redis, translated
from cluster_serving.protocol.slots import TensorSpec, read_reports

N = TypeVar("N", int, float)

_EPILOG = """Examples:
  cluster-serving-bench --job digits --concurrency 1,8,64
  cluster-serving-bench --job digits --mode open --rate 100,200
  cluster-serving-bench --job digits --http-url http://localhost:10020

--version prints the version."""

app = typer.Typer(pretty_exceptions_enable=False)
_out = Console(highlight=False, soft_wrap=True)
_err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@app.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def bench(
    job: Annotated[str, typer.Option(help="jobName of a running job.")] = DEFAULT_JOB,
    redis_url: Annotated[str, typer.Option(help="Redis of the job: redis://host:port/db.")] = "redis://localhost:6379",
    http_url: Annotated[
        str, typer.Option(help="Measure through the HTTP front end at this address, such as http://localhost:10020.")
    ] = "",
    protocol: Annotated[
        Literal["predict", "v2"],
        typer.Option(help="Over HTTP: predict (the original's JSON) or v2 (KServe, binary tensors)."),
    ] = "predict",
    header: Annotated[list[str] | None, typer.Option(help="HTTP header, such as 'Authorization: Bearer ...'.")] = None,
    flink_url: Annotated[str, typer.Option(help="Flink's REST address, to measure its processes.")] = "",
    shape: Annotated[str, typer.Option(help="Random tensors of this shape, such as 224,224,3.")] = "",
    dtype: Annotated[str, typer.Option(help="Dtype of the random tensors.")] = "",
    image: Annotated[str, typer.Option(help="An image file, a folder of them, or synthetic (JPEG, 224x224).")] = "",
    npy: Annotated[Path | None, typer.Option(help="A .npy file: one request per row of its first axis.")] = None,
    name: Annotated[str, typer.Option(help="Name of the input; default: the model's first.")] = "",
    mode: Annotated[
        Literal["closed", "open", "pipelined"],
        typer.Option(
            help="closed: each caller waits for its answer; open: --rate at random times; pipelined: as fast as "
            "possible with --concurrency in flight."
        ),
    ] = "closed",
    client: Annotated[Literal["sync", "async"], typer.Option(help="Native client: sync or async.")] = "async",
    concurrency: Annotated[
        str, typer.Option(help="Requests in flight: one number, or several that are run in turn.")
    ] = "1",
    rate: Annotated[str, typer.Option(help="Requests per second of open mode: one number, or several.")] = "",
    requests: Annotated[
        int | None, typer.Option(help="Number of requests to send, instead of waiting for a stable rate.")
    ] = None,
    processes: Annotated[int, typer.Option(help="Generator processes.", min=1)] = 1,
    warm_up: Annotated[float, typer.Option(help="Seconds before the first window.", min=0)] = 2.0,
    window: Annotated[float, typer.Option(help="Seconds of a window.", min=0.1)] = 2.0,
    windows: Annotated[
        int, typer.Option(help="Most windows; the measurement ends when three agree within 10 %.", min=1)
    ] = 10,
    timeout: Annotated[float, typer.Option(help="Seconds after which a request counts as lost.", min=0.1)] = 30.0,
    check_every: Annotated[int, typer.Option(help="Compare one in so many answers with the right one.", min=1)] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all results to this file.")] = None,
) -> None:
    """Measure a running job: throughput, latency, lost and wrong answers, CPU and memory."""
    redis_url = redis_url if "://" in redis_url else f"redis://{redis_url}"
    levels = _levels(mode, concurrency, rate)
    spec = _model_input(redis_url, job, required=not (http_url and (name or image)))
    records = _records(spec, name, shape, dtype, image, npy)
    endpoint = Endpoint("redis", redis_url, job, records, timeout)
    if http_url:
        path = f"/models/{quote(job)}/predict" if protocol == "predict" else f"/v2/models/{quote(job)}/infer"
        headers = dict(_header(text) for text in header or [])
        endpoint = Endpoint(protocol, http_url.rstrip("/") + path, job, records, timeout, headers)
    by_role, job_stats = roles(redis_url, flink_url, http_url), partial(_job_stats, redis_url, job)
    results: list[LoadResult] = []
    right = asyncio.run(references(endpoint))
    for in_flight, per_second in levels:
        load = Load(mode, client, in_flight, per_second, requests, check_every=check_every)
        plan = Plan(endpoint, load, processes, warm_up, window, windows, by_role, job_stats)
        with _out.status("") as status:
            results.append(measure(plan, lambda text: status.update(f"[dim]{text}"), right))
    facts = {"job": job, "through": endpoint.kind, "url": _shown(endpoint.url), "bytes": payload.size(records[0])}
    # A narrower console would cut the numbers.
    Console(highlight=False, width=max(_out.width, 130)).print(output.table(results))
    if json_file:
        json_file.write_text(output.to_json(results, facts), "utf8")
    if any(result.tally.lost or result.tally.wrong or not result.tally.answered for result in results):
        raise typer.Exit(1)


def _levels(mode: str, concurrency: str, rate: str) -> list[tuple[int, float]]:
    if mode == "open":
        if not rate:
            raise typer.BadParameter("open mode needs --rate, such as --rate 100,200")
        return [(0, number) for number in _numbers("--rate", rate, float)]
    return [(number, 0.0) for number in _numbers("--concurrency", concurrency, int)]


def _numbers(option: str, text: str, kind: type[N]) -> list[N]:
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not 0 < min(numbers) <= max(numbers) < math.inf:
        whole = "whole " if kind is int else ""
        raise typer.BadParameter(f"{option} is {text!r}; expected positive {whole}numbers separated by commas")
    return numbers


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or "\n" in text or "\r" in text:
        raise typer.BadParameter("--header: expected 'Name: value'")
    return name.strip(), value.strip()


def _model_input(redis_url: str, job: str, required: bool) -> TensorSpec | None:
    """Return the model's first input, as the slots of the job report it.

    Raises:
        InvalidInput: If the input is required and no slot is ready.
    """
    try:
        with connect("", 0, redis_url) as db, translated(db):
            reports = read_reports(db.hgetall(JobKeys(job).slots()))
    except ServingError:
        if required:
            raise
        return None
    ready = [report for report in reports if report.state == "ready"]
    if not ready and required:
        raise InvalidInput(f"job {job!r} has no slot that is ready; start the job, or name another one with --job")
    return ready[0].inputs[0] if ready and ready[0].inputs else None


def _job_stats(redis_url: str, job: str) -> JobStats | None:
    """Return the totals of a job, which its slots write once a second; None if Redis cannot be reached."""
    try:
        with open_redis(redis_url, job) as db:
            return JobStats.read(db.hgetall(JobKeys(job).stats()))
    except redis.RedisError:
        return None


def _records(spec: TensorSpec | None, name: str, shape: str, dtype: str, image: str, npy: Path | None) -> list[Record]:
    name = name or (spec.name if spec else "t")
    if image:
        return payload.image_records(name, image)
    if npy:
        return payload.array_records(name, npy)
    if shape:
        sizes = _numbers("--shape", shape, int)
    elif spec and spec.record_shape is not None:
        sizes = [size or 1 for size in spec.record_shape]
    else:
        raise typer.BadParameter("the model does not name the shape of its input: add --shape, --image or --npy")
    return payload.random_records(name, sizes, dtype or (spec.dtype if spec else "") or "float32")


def _shown(url: str) -> str:
    """Return an address without user and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def main(given: Sequence[str] | None = None) -> None:
    """Run `cluster-serving-bench` with these arguments; by default with those of the command line."""
    try:
        app(given)
    except (Failed, Lost) as error:
        answer = f": {error.answer}" if isinstance(error, Failed) else ""
        _err.print(f"error: the first request failed: {error}{answer}", style="red")
        sys.exit(1)
    except (ServingError, Stalled, httpx.HTTPError, redis.RedisError, LookupError, OSError, ValueError) as error:
        _err.print(f"error: {error}", style="red")
        sys.exit(1)
    except KeyboardInterrupt:
        _err.print("interrupted", style="red")
        sys.exit(130)


if __name__ == "__main__":
    main()
