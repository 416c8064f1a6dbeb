"""Fixtures shared by all tests: a real Redis, and the product itself with its Redis and Flink, each started once."""

import os
import secrets
import tempfile
import time

import pytest
import redis
from hypothesis import settings

from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.payloads.names import folder_name
from tests.support.fixtures import markers, trust_store
from tests.support.fixtures.cluster import running
from tests.support.fixtures.echo import Consumer
from tests.support.fixtures.redis_server import RedisServer

# A slow machine is no failure.
settings.register_profile("default", deadline=None)
settings.load_profile("default")

trust_store.read_once()


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help=f"run the fast tests: {markers.FAST}")


def pytest_configure(config):
    # Nothing of the tests is left in the cache of a user; all of them share what is proven about a model.
    os.environ.setdefault("CLUSTER_SERVING_CACHE", f"{tempfile.gettempdir()}/cluster-serving-test-cache-{os.getuid()}")
    if config.getoption("fast"):
        config.option.markexpr = markers.FAST
    # pytest 9.1 gives a folder no fixtures of its conftest.py if one of its files is named before a file of the parent
    # folder, and another one after it. Sorted, the files of a folder stand together.
    config.args.sort()


def pytest_ignore_collect(collection_path, config):
    # No test of such a file is fast, and importing its engine takes seconds.
    is_engine = config.getoption("fast") and collection_path.suffix == ".py" and markers.loads_engine(collection_path)
    return True if is_engine else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        markers.mark(item)


def pytest_terminal_summary(terminalreporter, config):
    """Print the time of the fast tests of a whole run, and keep it for .ci/run."""
    if config.args_source is not config.ArgsSource.TESTPATHS:
        return
    seconds = markers.fast_seconds(report for reports in terminalreporter.stats.values() for report in reports)
    text = f"fast tests: {seconds:.0f} s of work, of {markers.FAST_SECONDS} s"
    terminalreporter.write_line(text, yellow=seconds > markers.FAST_SECONDS)
    config.cache.set("cluster-serving/fast", text)


@pytest.fixture(scope="session")
def redis_server(request, tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("redis"), program=getattr(request, "param", None))
    yield server
    server.stop()


@pytest.fixture
def db(redis_server):
    with redis.Redis(port=redis_server.port) as client:
        yield client


@pytest.fixture
def job(request, db):
    """Name of a job that only this test uses."""
    name = f"job-{request.function.__name__[:40]}-{time.time_ns()}"
    yield name
    db.delete(name, JobKeys(name).answered, JobKeys(name).slots())
    # The models of a front end are all jobs of its Redis.
    db.srem(JOBS_KEY, name)


@pytest.fixture
def folder(tmp_path, job):
    """An empty folder for the large inputs of the job."""
    path = tmp_path / folder_name(job, secrets.token_hex(16))
    path.mkdir()
    return path


@pytest.fixture
def echo(redis_server, job):
    """A consumer that answers every request with its own inputs, through the real stream and sink."""
    with Consumer(redis_server.url, job):
        yield


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """The Flink of all tests of a worker, with its Redis."""
    # Short names and a space: the path itself is a test.
    with running(tmp_path_factory.mktemp("a b")) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(tmp_path):
    """Commands with nothing running, for a test that a shared cluster would disturb; what it starts is stopped."""
    with running(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def cluster_db(cluster):
    with redis.Redis(port=cluster.redis_port) as client:
        yield client


@pytest.fixture
def started(cluster):
    """Starts jobs and stops them after the test."""
    names = []

    def start(**settings):
        names.append(settings["jobName"])
        done = cluster.start(**settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return cluster.queues(settings["jobName"])

    yield start
    for name in names:
        cluster.stop(name)
