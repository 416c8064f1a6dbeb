"""Changes of the models of a slot that runs: orders are carried out in a thread beside the one that serves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.redis import write_hash
from cluster_serving.job.hosting import now
from cluster_serving.job.hosting.change import Change
from cluster_serving.job.hosting.model import HostedModel
from cluster_serving.job.hosting.models import HostedModels
from cluster_serving.job.hosting.votes import BEGUN, DONE, FAILED, KEEP, LOADED, MAKE, Votes, live_slots
from cluster_serving.job.hosting.wakeups import Wakeups
from cluster_serving.job.options import HostedOptions, JobOptions
from cluster_serving.job.slot_model import load_error
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.hosting import orders
from cluster_serving.protocol.hosting.control import LOAD, OUTCOME_TTL_S, UNLOADED, encode_outcome
from cluster_serving.protocol.hosting.orders import CHANGED, DEATHS, HANGS, KEPT_OUT, OPTIONS, REMOVE, Order
from cluster_serving.protocol.keys import JobKeys, as_text

log = logging.getLogger(__name__)

_RETRY_S, _PAUSE_S = 0.25, 0.02
_SETTLE_S = 1.0
_CLOSE_TIMEOUT_S = 2.0
_EMPTIED_S = 5.0
"""Seconds for which the requests of a model that has gone are still answered, with an error."""


class _Closed(Exception):
    """The slot ends. The order stays in Redis."""


class _Order:
    """An order that this slot has seen, and what it has made of it."""

    def __init__(self, order: Order, votes: Votes) -> None:
        self.order = order
        self.votes = votes
        self.model: HostedModel | None = None
        """The new model, until it is served."""
        self.change: Change | None = None
        self.has_begun = self.has_told = self.has_died = self.is_done = False

    def close(self) -> None:
        """Release a model that nothing serves."""
        if self.model is not None and not (self.change and self.change.made.is_set()):
            self.model.close()
        self.model = None


class Changes:
    """The thread that carries out the orders to a slot.

    A model is loaded beside the one that serves. When all slots have loaded it, it takes the place of the other one in
    each of them, between two batches. If one of them cannot load it, all go on as before. An order in which the process
    ends is not carried out again.

    A slot that was not there, or that has lost an order with Redis, takes over later what the others have changed.

    Args:
        options: Options of the job.
        models: The models of the slot.
    """

    def __init__(self, options: JobOptions, models: HostedModels) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = models.client
        self._options = options
        self._models = models
        self._job = options.redis.job
        self._key = orders.key(self._job)
        self._begun: dict[str, _Order] = {}
        self._following: Change | None = None
        """The change to a model that is loaded while others are served."""
        self._followed = ""
        self._next_settle = 0.0
        self._closed = threading.Event()
        self._wakeups = Wakeups(models.client, self._job)
        models.on_unfinished = self._wakeups.wake
        self._thread = threading.Thread(target=self._keep, name="changes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, unless it loads a model for longer than 2 s."""
        self._closed.set()
        self._wakeups.wake()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _keep(self) -> None:
        while not self._closed.is_set():
            try:
                with suppress(RedisError, OSError, _Closed):
                    self._round()
            except Exception:
                log.exception("job %s: a change of its models has failed", self._job)
            self._wait()
        self._models.on_unfinished = lambda: None
        self._wakeups.close()
        for known in self._begun.values():
            known.close()
        follows = self._following
        if follows and isinstance(follows.model, HostedModel) and not follows.made.is_set():
            follows.model.close()

    def _wait(self) -> None:
        """Wait until there may be something to do."""
        if self._begun:
            self._closed.wait(_PAUSE_S)
            return
        try:
            self._wakeups.wait(_SETTLE_S if self._models.left else None)
        except (RedisError, OSError):
            self._closed.wait(_RETRY_S)

    def _follow_up(self) -> None:
        """Load the models that are not loaded yet; others are served meanwhile."""
        models = self._models
        while models.later:
            name = self._following.name if self._following else models.wanted()
            one, kept = models.options_of[name], models.kept[name]
            self._following = self._following or models.begin(one, kept)
            self._make(self._following, one, kept)
            self._following = None
            models.later.remove(name)
            if not models.later:
                models.loaded()
            if self._closed.is_set():
                raise _Closed

    def _round(self) -> None:
        self._follow_up()
        while unfinished := self._models.unfinished:
            self._end(unfinished[0])
            # The model may have been removed at the same time.
            if when := _changed(self._models.kept.get(unfinished[0].name, {})):
                self._note(when)
            unfinished.popleft()
        found = {as_text(name): Order.from_json(text) for name, text in self._client.hgetall(self._key).items()}
        for name, known in [*self._begun.items()]:
            if name not in found or found[name].id != known.order.id:
                # Redis has lost it, or another slot has ended it.
                known.close()
                del self._begun[name]
        for name, order in found.items():
            self._carry_out(name, order)
        if self._models.has_others:
            self._follow()
            self._settle()

    def _carry_out(self, name: str, order: Order) -> None:
        known = self._begun.get(name)
        if known is None:
            known = _Order(order, Votes(self._client, self._job, order.id, self._models.index))
            self._begun[name] = known
        votes = known.votes
        votes.read()
        # A slot that starts again has a model that is being removed, and answers for it.
        is_back = order.action == REMOVE and name in self._models.options_of
        known.is_done = not is_back and (known.is_done or votes.has(DONE))
        if not (known.is_done or known.has_told or votes.decision):
            self._prepare(name, known)
            votes.read()
        live = live_slots(self._client, self._job, self._models.index)
        votes.decide(live)
        if not votes.decision:
            return
        if not known.is_done:
            self._finish(name, known)
            known.is_done = True
            votes.tell(DONE)
            votes.read()
        if votes.ends(live):
            self._end_order(name, order, votes)

    def _prepare(self, name: str, known: _Order) -> None:
        """Load the model of an order beside the one that serves, and report how the load ends."""
        order, votes = known.order, known.votes
        error = None
        if order.action == LOAD:
            try:
                if votes.has(BEGUN) and not (known.has_begun or votes.has(LOADED) or votes.has(FAILED)):
                    known.has_died = True
                    raise ModelError("the process has ended while it loaded the model")
                votes.tell(BEGUN)
                known.has_begun = True
                create_groups(self._client, name)
                known.model = known.model or self._models.load(now.ordered(self._options, order.options))
            except RedisError:
                raise
            except Exception as problem:
                one, told = now.ordered(self._options, order.options), load_error(problem)
                error = type(told)(self._options.of_hosted(one).model.as_configured(str(told)))
        votes.tell(FAILED if error else LOADED, error)
        known.has_told = True

    def _finish(self, name: str, known: _Order) -> None:
        """Make the change of an order, or go on as before; an attempt that Redis has interrupted is made again."""
        order, votes = known.order, known.votes
        if order.action != LOAD:
            self._unload(name, order)
            return
        one = now.ordered(self._options, order.options)
        kept = {OPTIONS: order.options, KEPT_OUT: "", CHANGED: repr(order.time)}
        if votes.decision == KEEP:
            known.close()
            if name in self._models.served:
                return
            error = votes.error or ModelError("another slot cannot load it")
            # A slot that starts again does not try what another one could not do.
            kept[KEPT_OUT] = error.message if known.has_died or self._models.has_others else ""
            known.change = known.change or self._models.failed(one, error)
        elif known.change is None:
            model = known.model
            known.change = Change(name, model, model.report()) if model else self._models.begin(one, kept)
        self._make(known.change, one, kept, is_ordered=True)
        known.model = None
        if votes.decision == MAKE:
            self._client.hdel(JobKeys(name).record, DEATHS, HANGS)
        self._note(kept[CHANGED])

    def _unload(self, name: str, order: Order) -> None:
        has_gone = order.action == REMOVE
        one = self._models.options_of.get(name)
        if one is None:
            return
        kept = {**self._models.kept.get(name, {}), KEPT_OUT: UNLOADED, CHANGED: repr(order.time)}
        self._make(self._models.unloaded(one, has_gone), one, kept, is_ordered=not has_gone)
        if has_gone:
            # Clients are told that nothing will answer.
            end = time.monotonic() + _EMPTIED_S
            while time.monotonic() < end and any(map(self._client.xlen, JobKeys(name).streams)):
                self._pause()
            self._make(Change(name, None, None), None, {}, is_ordered=True)
        self._note(kept[CHANGED])

    def _end_order(self, name: str, order: Order, votes: Votes) -> None:
        # Not before: a model is ready when all slots serve it.
        self._models.describe(name)
        # First: the next order for the model may follow the outcome at once.
        left = self._client.hget(self._key, name)
        if left and Order.from_json(left).id == order.id:
            self._client.hdel(self._key, name)
        outcome = JobKeys(self._job).control_outcome(order.id)
        write_hash(self._client, outcome, encode_outcome(votes.error))
        self._client.expire(outcome, OUTCOME_TTL_S)
        votes.delete()

    def _note(self, when: str) -> None:
        """Let the other slots look for a change of that time."""
        if self._models.has_others:
            write_hash(self._client, JobKeys(self._job).record, {CHANGED: when})
            orders.wake(self._client, self._job)

    def _follow(self) -> None:
        """Take over what other slots have changed, and write again what Redis has lost of it."""
        latest = as_text(self._client.hget(JobKeys(self._job).record, CHANGED) or b"")
        if latest == self._followed:
            return
        names = {*map(as_text, self._client.hgetall(JobKeys(self._job).models))}
        if not names:
            # Redis has lost all, and gets it again.
            return
        theirs = now.read(self._client, self._options)
        for name in sorted({*theirs, *self._models.options_of} - self._begun.keys()):
            own, other = self._models.kept.get(name, {}), theirs.get(name)
            if other and _time(other) > _time(own) and _is_same(other, own):
                self._models.kept[name] = other
            elif other and _time(other) > _time(own):
                one = now.options_of(self._options, name, other)
                self._make(self._models.begin(one, other), one, other)
            elif name in self._models.options_of and name not in names and _time({CHANGED: latest}) > _time(own):
                self._make(Change(name, None, None), None, {})
            elif _time(own) > _time(other or {}):
                self._models.describe(name)
        if not self._begun:
            self._followed = latest or max(map(_changed, self._models.kept.values()), default="")
            if not latest and self._followed:
                self._note(self._followed)

    def _settle(self) -> None:
        """Answer requests for models that no slot could load."""
        if self._models.left and time.monotonic() >= self._next_settle:
            self._next_settle = time.monotonic() + _SETTLE_S
            for change in self._models.settled():
                kept = {**self._models.kept[change.name], **self._models.given_up(change)}
                self._make(change, self._models.options_of[change.name], kept)
                self._note(kept[CHANGED])

    def _make(
        self, change: Change, one: HostedOptions | None, kept: Mapping[str, str], is_ordered: bool = False
    ) -> None:
        """Let a change be made, and wait for it; its slot keeps what it needs when it starts again.

        The last slot that has made an ordered change describes the model (`_end_order`).
        """
        if not change.is_planned:
            change.is_planned = True
            self._models.plan(change, one, kept)
        self._end(change, of_job=not is_ordered)

    def _end(self, change: Change, of_job: bool = True) -> None:
        while not change.made.is_set():
            self._pause()
        if change.earlier is not None:
            change.earlier.close()
            change.earlier = None
        self._models.describe(change.name, of_job)

    def _pause(self) -> None:
        if self._closed.wait(_PAUSE_S):
            raise _Closed


def _changed(kept: Mapping[str, str]) -> str:
    return kept.get(CHANGED, "")


def _time(kept: Mapping[str, str]) -> float:
    return float(_changed(kept) or 0)


def _is_same(kept: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(kept.get(field) == other.get(field) for field in (OPTIONS, KEPT_OUT))
