"""Decision on the layout of a job, from its configuration and what was measured on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_serving.job.options import CPU, JobOptions
from cluster_serving.launcher.command_log import say, warn
from cluster_serving.launcher.config.job_options import with_layout
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs.layout import PROVISIONAL, choice, kept
from cluster_serving.launcher.jobs.layout.choice import SIZES, Asked, Figure, Layout
from cluster_serving.launcher.jobs.layout.kept import Measured
from cluster_serving.launcher.jobs.layout.measuring import NotMeasured, measure
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services import state
from cluster_serving.launcher.shipping.inspection import size_of
from cluster_serving.launcher.targets import Target
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.host import cgroup

SECONDS = 3.0
"""Time for the measurements of a start."""

_TIMEOUT_S = 60.0
_LOG = "measurement.log"
_TUNE = "cluster-serving-cli tune"


@dataclass(frozen=True, slots=True)
class Tuned:
    """Figures of all layouts, the one that a start takes, and the line that describes it."""

    figures: tuple[Figure, ...]
    layout: Layout
    text: str


class Decider:
    """Decides on the layout of a job whose processes run on this machine.

    Args:
        config: Configuration of the job.
        options: Options of the job, where what is to be measured has its default.
        secret: Secret and salt of an encrypted model.
    """

    def __init__(self, config: Config, options: JobOptions, secret: tuple[str, str]) -> None:
        self._config = config
        self._options = options
        self._secret = secret
        self._cores = cgroup.cores()
        self._asked = asked(config)
        self._name = ""

    def decide(self, before: JobOptions | None = None) -> Layout:
        """Return the layout: as configured, as measured earlier, or as measured now.

        With `before`, the options of the job as it runs, only what is provisional is measured again: more than that
        would disturb the job.

        Raises:
            ModelError: If the engine refuses the model that is measured.
        """
        known = self._read()
        if not (self._asked.is_complete or (known and known.answers(self._asked))):
            if before is not None and not (known and known.is_provisional):
                return self._as_before(before)
            known = self._measured(known) or known
        return self._best(known)

    def known(self) -> Layout:
        """Return the layout as configured, as measured earlier, or the usual one."""
        return self._best(self._read())

    def _best(self, known: Measured | None) -> Layout:
        layout = self._usual()
        has_figures = known and choice.has_figures(known.figures, self._asked)
        if known and has_figures and not self._asked.is_complete and not known.problem:
            layout = choice.best_layout(known.figures, self._asked)
        if known and (text := choice.slower(layout, known.figures, self._asked)):
            warn(
                f"slower than what was measured: {text}; leave modelParallelism and threadPerModel out of config.yaml, "
                "and OMP_NUM_THREADS unset, for that"
            )
        return layout

    def tune(self, seconds: float) -> Tuned:
        """Measure all layouts again, and the configured one, and keep the figures.

        Raises:
            ModelError: If the engine refuses the model.
            NotMeasured: If nothing can be measured.
        """
        self._read()
        free = Asked(latency=self._asked.latency)
        figures, disturbed = self._measure(free, seconds)
        # What a person has asked for stays, whatever was beside it.
        found = Measured(tries=kept.MOST_TRIES).with_figures(free, figures, disturbed)
        if not choice.has_figures(found.figures, self._asked):
            figures, again = self._measure(self._asked, seconds / len(SIZES))
            found = found.with_figures(self._asked, figures, disturbed or again)
        self._write(found)
        layout = choice.best_layout(found.figures, self._asked)
        return Tuned(found.figures, layout, self.described(layout))

    def described(self, layout: Layout | None = None) -> str:
        """Return the line that describes a layout, or that of the options."""
        known = self._read()
        text = choice.described(self._cores, layout or layout_of(self._options), known.figures if known else ())
        if known is None or not known.disturbed:
            return text
        if known.is_provisional:
            return f"{text}; {PROVISIONAL}{known.disturbed}: the next start measures again"
        return f"{text}; measured while {known.disturbed}: cluster-serving-cli tune measures again"

    def _measured(self, known: Measured | None) -> Measured | None:
        """Measure; return None if that has failed."""
        say("Measuring the layout: modelParallelism, threadPerModel and maxBatchSize, as far as they are not set")
        try:
            # What was disturbed has no part in the next choice.
            kept_before = known if known and not known.disturbed else Measured(tries=known.tries if known else 0)
            found = kept_before.with_figures(self._asked, *self._measure(self._asked, SECONDS))
        except NotMeasured as problem:
            reason = self._options.model.as_configured(str(problem))
            warn(f"the layout cannot be measured: {reason}; it is {self._usual()}")
            if not problem.lasts:
                return None
            found = Measured(problem=str(problem))
        self._write(found)
        return found

    def _measure(self, wanted: Asked, seconds: float) -> tuple[list[Figure], str]:
        try:
            size = size_of(self._options.model)
            log = state.root() / _LOG
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return measure(self._options, self._secret, wanted, self._cores, size or 0, seconds, _TIMEOUT_S, log)
        except NotMeasured:
            raise
        except ModelError as error:
            # No slot could load it either, and each would try for some seconds.
            raise ModelError(self._options.model.as_configured(str(error))) from error
        except Exception as error:
            # A start does not depend on it.
            raise NotMeasured(f"{type(error).__name__}: {error}") from error

    def _usual(self) -> Layout:
        """Return the layout of a model that cannot be measured: one copy that uses all cores, where engines do."""
        given = self._asked
        copies = given.copies or 1
        threads = given.threads or (max(1, self._cores // copies) if self._options.model.device == CPU else 1)
        return Layout(copies, threads, given.batch or self._options.batch.max_batch_size)

    def _as_before(self, before: JobOptions) -> Layout:
        say(f"The layout is that of the job as it runs; {_TUNE} measures the new model")
        given, layout = self._asked, layout_of(before)
        return Layout(given.copies or layout.copies, given.threads or layout.threads, given.batch or layout.batch)

    def _read(self) -> Measured | None:
        try:
            self._name = kept.key(self._options, self._cores)
        except OSError:
            # A file of the model cannot be read; the slots will say so.
            return None
        return kept.read(self._name)

    def _write(self, found: Measured) -> None:
        if self._name:
            kept.write(self._name, found)


def laid_out(
    target: Target, store: JobStore, config: Config, options: JobOptions, before: JobOptions | None = None
) -> tuple[Config, JobOptions]:
    """Return configuration and options with the layout of the job; see `Decider.decide` for `before`.

    It is measured only where the job runs on this machine, with a fixed number of slots; otherwise it has the defaults
    of the options.
    """
    layout = layout_of(options)
    if config.autoscale_max is None and (decider := _decider(target, store, config, options)):
        layout = decider.decide(before)
    return with_layout(config, options, layout.copies, layout.threads, layout.batch)


def described(target: Target, store: JobStore, config: Config, options: JobOptions) -> str:
    """Return the line that describes the layout of a job; empty if the job runs on other machines."""
    decider = _decider(target, store, config, options)
    return decider.described() if decider else ""


def _decider(target: Target, store: JobStore, config: Config, options: JobOptions) -> Decider | None:
    """Return what decides on the layout; None if the job runs elsewhere, or the secret of its model is missing."""
    secret = store.secret(config)
    return Decider(config, options, secret) if target.is_here and secret is not None else None


def layout_of(options: JobOptions) -> Layout:
    """Return the layout that options have."""
    return Layout(options.model_parallelism, options.model.thread_per_model, options.batch.max_batch_size)


def asked(config: Config) -> Asked:
    """Return what a configuration asks for."""
    return Asked(config.model_parallelism, config.thread_per_model, config.max_batch_size, config.prefer == "latency")
