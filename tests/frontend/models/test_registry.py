"""The registry of models, read once for many callers."""

import asyncio

import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.reporting import SlotReporter
from cluster_serving.frontend.errors import ModelNotFound
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.registry import ModelRegistry
from cluster_serving.protocol.errors import RedisUnavailable, ServingError
from cluster_serving.protocol.hosting.control import UNLOADED
from cluster_serving.protocol.keys import DEFAULT_JOB, JOBS_KEY, JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec

MANY = 300


@pytest.fixture
def model(db, job):
    """A job with a slot that is ready."""
    SlotReporter(db, RedisOptions("", job), "1", 0).ready(SlotReport("", ""))
    yield job
    db.srem(JOBS_KEY, job)
    db.delete(JobKeys(job).slots())


def looks(db):
    return db.info("commandstats").get("cmdstat_smembers", {}).get("calls", 0)


def ask(url, names=()):
    """Ask for the models many times at once, and count the turns of the loop that it takes from the first answer."""

    async def main():
        dispatch = Dispatch(url)
        registry = ModelRegistry(dispatch, names)
        turns = []

        async def one():
            try:
                return sorted(await registry.latest())
            finally:
                turns.append(turn)

        turn = 0
        asked = asyncio.gather(*(one() for _ in range(MANY)), return_exceptions=True)
        while not asked.done():
            turn += 1
            await asyncio.sleep(0)
        await dispatch.close()
        return await asked, turns[-1] - turns[0]

    return asyncio.run(main())


def test_requests_that_come_during_the_first_look_wait_for_it(redis_server, db, model, job):
    """Where jobs are stopped, a look has a second part, after which the models are known."""
    stopped = f"{job}-stopped"
    db.hset(JobKeys(stopped).slots(), "0", SlotReport("", "stopped").to_json())
    db.sadd(JOBS_KEY, stopped)

    async def main():
        dispatch = Dispatch(redis_server.url)
        registry = ModelRegistry(dispatch)
        asked = [asyncio.create_task(registry.latest())]
        while not asked[0].done():
            asked.append(asyncio.create_task(registry.latest()))
            await asyncio.sleep(0)
        found = await asyncio.gather(*asked)
        await dispatch.close()
        return {name for models in found for name in (model, stopped) if name not in models}

    try:
        assert not asyncio.run(main())
    finally:
        db.srem(JOBS_KEY, stopped)
        db.delete(JobKeys(stopped).slots())


@pytest.mark.parametrize("before", [None, "loading", "stopped"])
def test_a_job_that_was_started_just_now_is_ready_for_the_first_who_asks_for_it(redis_server, db, model, job, before):
    """Whoever starts a job beside a front end that serves others may ask as soon as the command ends."""

    async def main():
        dispatch = Dispatch(redis_server.url)
        registry = ModelRegistry(dispatch)
        if before:
            db.hset(JobKeys(new).slots(), "0", SlotReport("", before).to_json())
            db.sadd(JOBS_KEY, new)
        await registry.latest()
        slot = SlotReporter(db, RedisOptions("", new), "1", 0)
        slot.loading()
        slot.ready(SlotReport("", ""))
        found = await registry.model(new)
        await dispatch.close()
        return found

    new = f"{job}-new"
    try:
        found = asyncio.run(main())
        assert (found.job, found.state) == (new, "ready")
    finally:
        db.srem(JOBS_KEY, new)
        db.delete(JobKeys(new).slots())


def test_one_look_answers_all_who_wait_at_once(redis_server, db, model):
    before = looks(db)
    found, turns = ask(redis_server.url)
    assert looks(db) == before + 1
    assert all(model in names for names in found)
    assert turns < MANY / 10


def test_all_are_told_that_redis_is_away():
    found, _ = ask("redis://127.0.0.1:1", ("some",))
    assert all(isinstance(error, RedisUnavailable) for error in found)
    assert len(set(map(id, found))) == MANY


def test_a_job_of_which_nothing_can_be_read_keeps_no_other_from_being_asked(redis_server, db, model):
    wrong, odd = f"{model}-wrong", f"{model}-odd"
    db.set(JobKeys(wrong).slots(), "no hash")
    db.hset(JobKeys(odd).slots(), "0", "no report")
    found, _ = ask(redis_server.url, (wrong, model, odd))
    assert all(names == sorted([wrong, model, odd]) for names in found)
    for name, reason in ((wrong, "WRONGTYPE"), (odd, "cannot be read")):
        found, _ = ask(redis_server.url, (name,))
        assert all(type(error) is ServingError and reason in str(error) for error in found)
    db.delete(JobKeys(wrong).slots(), JobKeys(odd).slots())


@pytest.mark.parametrize("cancelled", [0, 1])
def test_who_gives_up_takes_no_answer_from_the_others(redis_server, model, cancelled):
    async def main():
        dispatch = Dispatch(redis_server.url)
        registry = ModelRegistry(dispatch)
        tasks = [asyncio.create_task(registry.latest()) for _ in range(2)]
        await asyncio.sleep(0)
        tasks.pop(cancelled).cancel()
        (left,) = tasks
        found = await left
        await dispatch.close()
        return found

    assert model in asyncio.run(main())


def test_among_several_jobs_the_one_that_runs_is_the_default_and_those_that_run_have_to_answer(redis_server, db, job):
    names = [f"{job}-{number}" for number in range(3)]

    def report(name, state):
        db.sadd(JOBS_KEY, name)
        db.hset(JobKeys(name).slots(), "0", SlotReport("1", state).to_json())

    async def look():
        dispatch = Dispatch(redis_server.url)
        registry = ModelRegistry(dispatch)
        try:
            default = await registry.model()
        except ModelNotFound:
            default = None
        required = await registry.required() if default is None or default.state == "ready" else []
        await dispatch.close()
        return default and default.name, [model.name for model in required]

    report(names[0], "stopped")
    report(names[1], "ready")
    assert asyncio.run(look()) == (names[1], [names[1]])
    report(names[2], "ready")
    assert asyncio.run(look()) == (None, names[1:])
    names.append(DEFAULT_JOB)
    report(DEFAULT_JOB, "stopped")
    assert asyncio.run(look()) == (DEFAULT_JOB, [])
    db.srem(JOBS_KEY, *names)
    db.delete(*(JobKeys(name).slots() for name in names))


@pytest.mark.parametrize("ended", ["stopped", UNLOADED])
def test_a_default_model_that_was_ended_is_not_missed_while_others_serve(redis_server, db, job, ended):
    other = f"{job}-other"

    def report(name, state):
        db.sadd(JOBS_KEY, name)
        db.hset(JobKeys(name).slots(), "0", SlotReport("1", state, engine="Echo").to_json())

    async def required():
        dispatch = Dispatch(redis_server.url)
        found = await ModelRegistry(dispatch, default=job).required()
        await dispatch.close()
        return sorted(model.name for model in found)

    report(job, "ready")
    report(other, "ready")
    assert asyncio.run(required()) == [job, other]
    report(job, ended)
    assert asyncio.run(required()) == [other]
    report(other, ended)
    # Nothing serves: the front end is not ready, because of its own model.
    assert asyncio.run(required()) == [job]
    db.srem(JOBS_KEY, other)
    db.delete(JobKeys(other).slots())


def test_a_job_whose_first_start_failed_is_in_nobodys_way(redis_server, db, job):
    other = f"{job}-other"

    def report(name, **fields):
        db.sadd(JOBS_KEY, name)
        db.hset(JobKeys(name).slots(), "0", SlotReport("1", **fields).to_json())

    async def look():
        dispatch = Dispatch(redis_server.url)
        registry = ModelRegistry(dispatch)
        default, required = await registry.model(job), await registry.required()
        by_no_name = await registry.described()
        await dispatch.close()
        return default.name, [model.name for model in required], by_no_name[""] is not None

    report(job, state="ready", engine="Echo")
    report(other, state="failed", error="no model")
    assert asyncio.run(look()) == (job, [job], True)
    # A model that has served before is missed.
    report(other, state="failed", engine="Echo", error="no model")
    assert asyncio.run(look()) == (job, [job, other], False)
    db.srem(JOBS_KEY, job, other)
    db.delete(JobKeys(job).slots(), JobKeys(other).slots())


@pytest.mark.parametrize("submission", ["1", "2"], ids=["the same start", "another start"])
def test_the_signature_of_a_model_outlives_redis_while_the_same_start_loads_it_again(redis_server, db, job, submission):
    x = TensorSpec("x", "float32", (None, 4))
    options = RedisOptions("", job)
    SlotReporter(db, options, "1", 0).ready(SlotReport("", "", engine="OpenVINO", inputs=(x,)))

    async def main():
        dispatch = Dispatch(redis_server.url)
        registry = ModelRegistry(dispatch)
        assert (await registry.model(job)).loaded
        db.delete(JobKeys(job).slots())
        SlotReporter(db, options, submission, 0).loading()
        registry.forget()
        found = await registry.model(job)
        await dispatch.close()
        return found

    try:
        model = asyncio.run(main())
    finally:
        db.srem(JOBS_KEY, job)
    assert (model.state, model.loaded) == ("loading", None)
    assert (model.described.inputs if model.described else ()) == ((x,) if submission == "1" else ())


def test_a_front_end_that_may_not_read_the_controller_serves_all_the_same(redis_server, db, model):
    keys = [JOBS_KEY, JobKeys(model).slots(), JobKeys(model).generations]
    db.acl_setuser("front", enabled=True, nopass=True, commands=["+@all"], keys=keys)
    try:
        found, _ = ask(f"redis://front:any@127.0.0.1:{redis_server.port}", (model,))
    finally:
        db.acl_deluser("front")
    assert found == [[model]] * MANY
