"""Changes of the models of a slot that runs: orders are carried out in a thread beside the one that serves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError

from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.redis import write_hash
from cluster_serving.job.hosting import now
from cluster_serving.job.hosting.change import Change
from cluster_serving.job.hosting.models import HostedModels
from cluster_serving.job.options import HostedOptions, JobOptions
from cluster_serving.job.slot_model import load_error
from cluster_serving.protocol.errors import ModelError, ServingError
from cluster_serving.protocol.hosting import orders
from cluster_serving.protocol.hosting.orders import DEATHS, KEPT_OUT, OPTIONS, REMOVE, Order
from cluster_serving.protocol.keys import JobKeys, as_text
from cluster_serving.protocol.model_control import LOAD, OUTCOME_TTL_S, UNLOADED, encode_outcome

log = logging.getLogger(__name__)

_LOOK_S = 0.25
_CLOSE_TIMEOUT_S = 2.0
_EMPTIED_S = 5.0
"""Seconds for which the requests of a model that has gone are still answered, with an error."""


class _Closed(Exception):
    """The slot ends. The order stays in Redis."""


class Changes:
    """The thread that carries out the orders to a slot.

    A model is loaded beside the one that serves, and takes its place between two batches. If it cannot be loaded, the
    one that serves stays. An order in which the process ends is not carried out again.

    Args:
        options: Options of the job.
        models: The models of the slot.
    """

    def __init__(self, options: JobOptions, models: HostedModels) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = models.client
        self._options = options
        self._models = models
        self._key = orders.key(options.redis.job)
        self._begun: set[str] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="changes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, unless it loads a model for longer than 2 s."""
        self._closed.set()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _keep(self) -> None:
        while not self._closed.wait(_LOOK_S):
            try:
                with suppress(RedisError, OSError, _Closed):
                    self._round()
            except Exception:
                log.exception("job %s: a change of its models has failed", self._options.redis.job)

    def _round(self) -> None:
        while unfinished := self._models.unfinished:
            self._end(unfinished[0])
            unfinished.popleft()
        found = self._client.hgetall(self._key)
        for field, text in found.items():
            self._carry_out(as_text(field), Order.from_json(text))

    def _carry_out(self, name: str, order: Order) -> None:
        error: ServingError | None = None
        try:
            if order.action == LOAD:
                self._load(name, order)
            else:
                self._unload(name, has_gone=order.action == REMOVE)
        except (RedisError, _Closed):
            raise
        except Exception as problem:
            error = load_error(problem)
        # First: the next order for the model may follow the outcome at once, or has come already.
        left = self._client.hget(self._key, name)
        if left and Order.from_json(left).id == order.id:
            self._client.hdel(self._key, name)
        self._begun.discard(order.id)
        outcome = JobKeys(self._options.redis.job).control_outcome(order.id)
        write_hash(self._client, outcome, encode_outcome(error))
        self._client.expire(outcome, OUTCOME_TTL_S)

    def _load(self, name: str, order: Order) -> None:
        one = now.ordered(self._options, order.options)
        try:
            if order.tries and order.id not in self._begun:
                raise ModelError("the process has ended while it loaded the model")
            write_hash(self._client, self._key, {name: replace(order, tries=1).to_json()})
            self._begun.add(order.id)
            create_groups(self._client, name)
            model = self._models.load(one)
        except RedisError:
            raise
        except Exception as error:
            known = load_error(error)
            message = self._options.of_hosted(one).model.as_configured(str(known))
            if name not in self._models.served:
                kept_out = message if order.id not in self._begun else ""
                self._make(self._models.failed(one, error), one, {OPTIONS: order.options, KEPT_OUT: kept_out})
            raise type(known)(message) from None
        change = Change(name, model, model.report())
        try:
            self._make(change, one, {OPTIONS: order.options, KEPT_OUT: ""})
        finally:
            if not change.made.is_set():
                model.close()

    def _unload(self, name: str, has_gone: bool) -> None:
        one = self._models.options_of.get(name)
        if one is None:
            return
        kept = self._models.kept.get(name, {})
        self._make(self._models.unloaded(one, has_gone), one, {**kept, KEPT_OUT: UNLOADED})
        if not has_gone:
            return
        # Clients are told that nothing will answer.
        end = time.monotonic() + _EMPTIED_S
        while time.monotonic() < end and any(map(self._client.xlen, JobKeys(name).streams)):
            self._pause()
        self._make(Change(name, None, None), None, {})

    def _make(self, change: Change, one: HostedOptions | None, kept: Mapping[str, str]) -> None:
        """Let a change be made, and wait for it; keep what a slot that starts again needs."""
        name = change.name
        self._models.plan(change)
        while not change.made.is_set():
            self._pause()
        if one is None:
            self._models.options_of.pop(name, None)
            self._models.kept.pop(name, None)
        else:
            self._models.options_of[name] = one
            self._models.kept[name] = dict(kept)
            self._client.hdel(JobKeys(name).record, DEATHS)
        self._end(change)

    def _end(self, change: Change) -> None:
        while not change.made.is_set():
            self._pause()
        if change.earlier is not None:
            change.earlier.close()
            change.earlier = None
        self._models.describe(change.name)

    def _pause(self) -> None:
        if self._closed.wait(0.02):
            raise _Closed
