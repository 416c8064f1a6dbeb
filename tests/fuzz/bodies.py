"""Bodies that could delay the requests of others: a search for the slowest, and what the slowest known ones do.

python -m tests.fuzz.bodies search --seconds 60
python -m tests.fuzz.bodies delay --size 990000 --at-once 16

`search` reads random bodies, and prints the slowest of those that the event loop reads itself, which cost less than
`LARGE` (`json_text.reading_cost`). `delay` sends the known ones (`tests.support.payloads.worst`) to a front end of
its own, and prints the longest time that a request for its health took meanwhile.
"""

import argparse
import http.client
import multiprocessing
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import numpy as np
import redis

from cluster_serving.frontend import app, arguments
from cluster_serving.frontend.api.json_text import reading_cost
from cluster_serving.frontend.api.original import instances
from cluster_serving.frontend.api.v2 import body as v2_body
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.server.offload import LARGE
from cluster_serving.frontend.server.processes import app_server
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.results import encode_error, encode_result
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from tests.support.fixtures.echo import answering
from tests.support.fixtures.redis_server import RedisServer
from tests.support.payloads import worst

JOB = "delay"
DTYPES = ("", "float32", "int64", "str")
NUMBERS = ("1", "-1", "0.1", "1e300", "12345678901234567890", "0.123456789012345678901")
LEAVES = (*NUMBERS, '"a"', '""', '"1|2"', "null", "true")
EVERY = 0.002
LONGEST = 100_000


def report(dtype):
    specs = (TensorSpec("x", dtype, (None, None)),)
    return SlotReport(submission="", state="ready", engine="Echo", inputs=specs, outputs=specs)


def random_value(chance, depth=0):
    """Return a random value as JSON text; its parts repeat, so that it may be long."""
    kind = chance.random()
    if depth > 4 or kind < 0.3:
        return chance.choice(LEAVES)
    if kind < 0.4:
        return "[" * (levels := chance.randint(1, 31)) + chance.choice(LEAVES) + "]" * levels
    if kind < 0.5:
        return '{"b64":"AAAA"}' if chance.random() < 0.5 else '{"shape":[9],"data":[1],"indices":[[1]]}'
    parts = [random_value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    times = chance.choice((1, 1, 10, 100))
    return f"[{','.join(parts * (times if times * sum(map(len, parts)) < LONGEST else 1))}]"


def random_body(chance, size):
    """Return a random body for `/predict` of at most about so many bytes."""
    value = random_value(chance)
    count = max(1, chance.choice((1, size // (len(value) + 1))))
    many = f"[{','.join([value] * count)}]" if chance.random() < 0.8 else value
    many = many if len(many) < 2 * size else value
    names = chance.choice((1, 1, 1, 100))
    record = ",".join(f'"x{index or ""}":{many}' for index in range(max(1, min(names, size // len(many)))))
    records = max(1, min(chance.choice((1, 1, 1000)), size // len(record)))
    return f'{{"instances":[{",".join([f"{{{record}}}"] * records)}]}}'.encode()


def read(body, dtype):
    with suppress(ServingError):
        instances.read(body, 1000, report(dtype))


def seconds(work):
    began = time.thread_time()
    work()
    return time.thread_time() - began


def search(options):
    chance = random.Random(options.seed)
    found = []
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        body, dtype = random_body(chance, options.size), chance.choice(DTYPES)
        took = seconds(lambda body=body, dtype=dtype: read(body, dtype))
        cost = reading_cost(body)
        if cost < LARGE:
            found.append((took, cost / LARGE, len(body), dtype, body[:100]))
    print(f"{len(found)} bodies that the event loop reads itself; the slowest:")
    for took, cost, size, dtype, start in sorted(found, reverse=True)[:20]:
        print(f"{1000 * took:7.1f} ms  cost {cost:5.2f}  {size:8} bytes  {dtype or 'any':8} {start.decode()}")


def serve(url, ready):
    words = [f"--redisUrl={url}", f"--redisInputQueue={JOB}", "--port=0", "--grpcPort=0", "--requestTimeout=120000"]
    front = FrontEnd(arguments.read([*words, "--canaryTimeout=60", "--drainSeconds=0"], {}))
    app_server.run(app.make(front, lambda urls: ready.put(urls[0])))


def answer(entry):
    try:
        inputs = entry.decode()[1]
    except ServingError as error:
        return encode_error(error)
    arrays = [value if isinstance(value, np.ndarray) else np.zeros(1) for value in inputs.values()]
    return encode_result(entry.native, list(inputs), arrays)


def echo(url):
    with redis.Redis.from_url(url) as db, answering(db, JOB, answer):
        time.sleep(1e6)


def probe(port, began, longest, stopped):
    """Ask for the health of a front end all the time; set the longest time between two answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not stopped.is_set():
        sent = time.monotonic()
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        longest.value = max(longest.value, time.monotonic() - sent)
        began.set()
        time.sleep(EVERY)


def known(size):
    """Yield name, path, body and headers of all known bodies."""
    for name, body in worst.predict(size):
        yield f"/predict: {name}", "/predict", body, {}
    for name, body, length in worst.infer(size):
        headers = {} if length == len(body) else {v2_body.HEADER_LENGTH: str(length)}
        yield f"v2: {name}", f"/v2/models/{JOB}/infer", body, headers


def delay(options):
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = RedisServer(Path(folder))
        stack.callback(server.stop)
        db = stack.enter_context(redis.Redis.from_url(server.url))
        db.sadd(JOBS_KEY, JOB)
        db.hset(JobKeys(JOB).slots(), "0", report("").to_json())
        ready = spawn.Queue()
        for target, needed in ((serve, (server.url, ready)), (echo, (server.url,))):
            process = spawn.Process(target=target, args=needed)
            process.start()
            stack.callback(process.kill)
        url = ready.get(timeout=60)
        client = stack.enter_context(httpx.Client(base_url=url, timeout=300))
        pool = stack.enter_context(ThreadPoolExecutor(options.at_once))
        for name, path, body, headers in known(options.size):
            if options.only not in name:
                continue
            began, stopped = spawn.Event(), spawn.Event()
            longest = spawn.Value("d", 0.0)
            prober = spawn.Process(target=probe, args=(httpx.URL(url).port, began, longest, stopped))
            prober.start()
            began.wait(30)
            longest.value = 0.0
            sent = time.monotonic()
            posts = [pool.submit(client.post, path, content=body, headers=headers) for _ in range(options.at_once)]
            statuses = {post.result().status_code for post in posts}
            took = time.monotonic() - sent
            stopped.set()
            prober.join()
            print(
                f"{1000 * longest.value:7.1f} ms of delay, {took:6.2f} s for {options.at_once} of {len(body)} bytes, "
                f"{statuses}  {name}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "delay"))
    parser.add_argument("--size", type=int, default=990_000, help="bytes of a body")
    parser.add_argument("--at-once", type=int, default=1, help="bodies at a time")
    parser.add_argument("--only", default="", help="part of the names of the bodies to send")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options = parser.parse_args()
    search(options) if options.what == "search" else delay(options)


if __name__ == "__main__":
    main()
