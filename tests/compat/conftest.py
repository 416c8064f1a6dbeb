"""Programs written for the original's client, run with that client itself and with ours under its name."""

import pytest

from tests.support.payloads import model_zoo
from tests.support.programs import originals
from tests.support.worlds.environments import python_with


@pytest.fixture(scope="session")
def original_python():
    """Python of an environment that holds the original's clients as they were published; made once."""
    # Without their dependencies, which ask for a second OpenCV.
    return python_with("compat-original", originals.LIBRARIES, ["--no-deps", *originals.ORIGINALS])


@pytest.fixture(params=originals.CLIENTS)
def client(request):
    """Which client runs the program of a test."""
    return request.param


@pytest.fixture
def run(client, original_python, tmp_path):
    """Run the body of a program with the client of the test; see `originals.run_program`."""

    def run(port, job, body, **given):
        return originals.run_program(client, original_python, tmp_path, port, job, body, given)

    return run


@pytest.fixture(scope="module")
def serve(cluster, tmp_path_factory):
    """Starts a job when the first test of a module needs it; each holds a task slot until the module is done."""
    started = set()

    def serve(name, save, **settings):
        if name not in started:
            folder = tmp_path_factory.mktemp(name)
            save(folder)
            done = cluster.start(jobName=name, modelPath=folder, **settings)
            assert done.returncode == 0, done.stdout + done.stderr
            started.add(name)
        return cluster.redis_port, name

    yield serve
    for name in started:
        cluster.stop(name)


@pytest.fixture
def digits(serve):
    return serve("compat-digits", model_zoo.save_openvino_digits)


@pytest.fixture
def images(serve):
    return serve("compat-images", model_zoo.save_openvino_digit_images, imageResize="8,8")


@pytest.fixture
def ranked_images(serve):
    return serve("compat-ranked", model_zoo.save_openvino_digit_images, imageResize="8,8", postProcessing="topN(3)")


@pytest.fixture
def encrypted_images(serve):
    settings = {"imageResize": "8,8", "recordEncrypted": True, "recordKey": "published"}
    return serve("compat-encrypted", model_zoo.save_openvino_digit_images, **settings)


@pytest.fixture
def image_stream(serve):
    return serve("image_stream", model_zoo.save_openvino_digit_images, imageResize="8,8", postProcessing="top_n(3)")


@pytest.fixture
def words(serve):
    return serve("compat-words", originals.save_words)


@pytest.fixture
def mixed(serve):
    return serve("compat-mixed", originals.save_mixed)
