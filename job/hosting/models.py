"""The models of a slot that serves several: they are loaded one by one, and described in one hash of the job."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack

import redis

from cluster_serving.connectors.slot import permissions
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.redis import connect, write_hash
from cluster_serving.connectors.slot.reporting import SlotReporter
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.hosting.metrics import OncePerName
from cluster_serving.job.hosting.model import AbsentModel, HostedModel
from cluster_serving.job.options import JobOptions
from cluster_serving.job.secret import SECRET_TIMEOUT, wait_for_secret
from cluster_serving.job.slot_model import load_error, process_gauges
from cluster_serving.protocol import memory
from cluster_serving.protocol.errors import InvalidInput, ModelError, RedisUnavailable
from cluster_serving.protocol.hosted import HOST
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport

log = logging.getLogger(__name__)

_MOST_TOLD = 20
"""Most names in a message."""


class HostedModels:
    """All models of a slot. Those that cannot be loaded are left out, and described with the reason.

    Args:
        options: Options of the job.
        shared: What the slot of the job shares.
        metrics: Metrics of the function around the models.
        first_attempt: False if Flink has started this slot again.

    Attributes:
        served: The models that are loaded, by name.
        queues: These and all else that has a queue, by name: models that cannot be loaded, and the job itself, whose
            requests name no model.

    Raises:
        ModelError: If none can be loaded; that has been reported.
    """

    def __init__(self, options: JobOptions, shared: SharedSlot, metrics: Metrics, first_attempt: bool = True) -> None:
        self._options = options
        self._keys = JobKeys(options.redis.job)
        # The slot shares its counts for as long as one of its parts holds it.
        self._shared = shared
        self.served: dict[str, HostedModel] = {}
        self.queues: dict[str, HostedModel | AbsentModel] = {}
        self._reports: dict[str, SlotReport] = {}
        with ExitStack() as opened:
            self._client: redis.Redis = opened.enter_context(connect(options.redis))
            self._reporter = SlotReporter(self._client, options.redis, options.submission, shared.index)
            self._reporter.loading()
            opened.callback(self._reporter.close)
            opened.callback(_close, self.served)
            try:
                self._load(OncePerName(metrics), first_attempt)
            except Exception as error:
                known = load_error(error)
                self._reporter.failed(known.code, options.model.as_configured(str(known)))
                raise
            largest = max(one.options.batch.max_batch_size for one in self.served.values())
            self._reporter.ready(SlotReport("", "", engine=f"{len(self.served)} models", max_batch_size=largest))
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Release the models, and end the reports."""
        self._opened.close()

    def check(self, name: str) -> None:
        """Report what requests have told of a model."""
        if self.queues[name].check():
            self._reports[name] = self.served[name].report()
            write_hash(self._client, self._keys.models, {name: self._reports[name].to_json()})
            self._tell_clients(name)

    def publish(self) -> None:
        """Write the descriptions of the models, and their limits, which clients read.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        described = {name: report.to_json() for name, report in self._reports.items()}
        write_hash(self._client, self._keys.models, described, replace=True)
        for one in self.queues.values():
            publish_limits(self._client, one.options.redis)
        for name in self._reports.keys() & self.queues.keys():
            self._tell_clients(name)

    def _tell_clients(self, name: str) -> None:
        # Clients know of no other job than the one that they name: they look for a report of its slots.
        write_hash(self._client, JobKeys(name).slots(), {"0": self._reports[name].to_json()}, replace=True)
        write_hash(self._client, JobKeys(name).record, {HOST: self._options.redis.job})

    def _load(self, metrics: Metrics, first_attempt: bool) -> None:
        options = self._options
        permissions.check(self._client, options.redis.job)
        secret = ("", "")
        if options.model.encrypted:
            # A slot that waits cannot be cancelled, and the launcher cancels the job after the first attempt.
            secret = wait_for_secret(self._client, options.redis.job, SECRET_TIMEOUT if first_attempt else 0.0)
            self._reporter.secret = secret
        began, before = time.monotonic(), memory.resident()
        for hosted in options.hosted:
            own = options.of_hosted(hosted)
            try:
                if hosted.refused:
                    raise ModelError(hosted.refused)
                permissions.check(self._client, hosted.name)
                one = HostedModel(own, self._shared.index, self._client, metrics, secret)
            except Exception as error:
                self._refuse(own, error)
                continue
            self.served[hosted.name] = self.queues[hosted.name] = one
            self._reports[hosted.name] = one.report()
        names = ", ".join([*self.served][:_MOST_TOLD]) + (", ..." if len(self.served) > _MOST_TOLD else "")
        unnamed = InvalidInput(f"the job {options.redis.job} serves several models; name one of them: {names}")
        self.queues[options.redis.job] = AbsentModel(options, self._shared, unnamed)
        self.publish()
        if not self.served:
            first, report = next(iter(self._reports.items()))
            raise ModelError(f"none of the models of {options.model.path} can be loaded; {first}: {report.error}")
        self._shared.counts.gauges = process_gauges(time.monotonic() - began, memory.resident() - before)

    def _refuse(self, options: JobOptions, error: Exception) -> None:
        known = load_error(error)
        message, redis = options.model.as_configured(str(known)), options.redis
        log.warning("model %s of job %s is not served: %s", redis.job, self._options.redis.job, message)
        self._reporter.tell(f"does not serve the model {redis.job}: {message}")
        self._reports[redis.job] = SlotReport(
            *("", "failed"), code=known.code, error=message, version=redis.version, numbered=redis.numbered,
            time=time.time(),
        )  # fmt: skip
        if isinstance(error, RedisUnavailable):
            # Its streams cannot be read: a read of all would fail.
            return
        shared = SharedSlot.of(redis.name, self._shared.index)
        self.queues[redis.job] = AbsentModel(
            options, shared, ModelError(f"model {redis.job!r} cannot be loaded: {message}")
        )


def _close(served: dict[str, HostedModel]) -> None:
    for model in served.values():
        model.close()
