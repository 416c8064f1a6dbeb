"""The bare loop: the same work with nothing around it. It prints answers per second.

Usage: python bare.py SECONDS BATCH FILE...     FILE has the body of a request
       python bare.py answers 1 FILE...         prints the answer to each file instead
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from engine import WORKERS, Engine, decode


def loop(engine: Engine, bodies: list[bytes], batch: int, stop: threading.Event, counts: list[int]) -> None:
    done = 0
    while not stop.is_set():
        chosen = [bodies[(done + index) % len(bodies)] for index in range(batch)]
        engine.answer([decode(body) for body in chosen])
        done += batch
    counts.append(done)


def main() -> None:
    seconds, batch, *files = sys.argv[1:]
    bodies = [Path(file).read_bytes() for file in files]
    engines = [Engine() for _ in range(WORKERS)]
    if seconds == "answers":
        print(json.dumps([engines[0].answer([decode(body)])[0] for body in bodies]))
        return
    counts: list[int] = []
    for duration in (float(seconds) / 5, float(seconds)):  # The first one is the warm-up.
        counts.clear()
        stop = threading.Event()
        threads = [threading.Thread(target=loop, args=(engine, bodies, int(batch), stop, counts)) for engine in engines]
        spent, started = time.process_time(), time.perf_counter()
        for thread in threads:
            thread.start()
        time.sleep(duration)
        stop.set()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - started
    print(json.dumps({"rate": sum(counts) / elapsed, "cpu": (time.process_time() - spent) / sum(counts) * 1000}))


if __name__ == "__main__":
    main()
