"""The v2 protocol over HTTP, asked by Triton's own client, sync and asyncio; Redis is real, the consumer echoes."""

import asyncio

import httpx
import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from cluster_serving.protocol.figures.metrics import (
    ANSWERED,
    BATCH_SIZE,
    FAILED,
    FAILED_TIME,
    QUEUE_WAIT,
    RECORD_COMPUTE,
    REQUEST,
)
from cluster_serving.protocol.figures.stats import LAST_ANSWER
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from tests.support.fixtures.waiting import wait_until

INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMBERS = ["bool", "float16", "float32", "float64", *INTEGERS]


@pytest.fixture
def front(serve, report, echo):
    """A front end of a job that echoes two tensors of any dtype and a vector of strings."""
    report(("x", "", (None, None)), ("f", "float32", (None, 2, 3)), ("s", "str", (None, 2)), max_batch_size=8)
    return serve()


@pytest.fixture
def client(front):
    with triton.InferenceServerClient(front.url.removeprefix("http://"), network_timeout=60) as client:
        yield client


def tensor(name, array, binary=True):
    made = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def record(x, binary=True):
    """Inputs with a batch of as many records as x has."""
    count = len(x)
    words = np.array([["ä", f"{number}"] for number in range(count)], object)
    return [
        tensor("x", x, binary),
        tensor("f", np.full((count, 2, 3), 0.5, "f4"), binary),
        tensor("s", words, binary),
    ], words


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("binary", [True, False])
def test_tensors_of_every_dtype_come_back(client, job, dtype, binary, count=7):
    x = np.arange(count * 3).reshape(count, 3).astype(dtype)
    inputs, words = record(x, binary or dtype == "float16")
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in "xfs"]
    result = client.infer(job, inputs, outputs=outputs, request_id="id 7")
    np.testing.assert_array_equal(result.as_numpy("x"), x)
    assert result.as_numpy("x").dtype == x.dtype
    assert result.as_numpy("f").shape == (count, 2, 3)
    texts = [item.decode() if isinstance(item, bytes) else item for item in result.as_numpy("s").ravel()]
    assert texts == words.ravel().tolist()
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("id 7", job, "1")
    assert ["data" in output for output in response["outputs"]] == [not binary] * 3


def test_bfloat16_is_taken_as_tritons_client_sends_it(client, job):
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    inputs, _ = record(np.ones((2, 3)))
    np.testing.assert_array_equal(client.infer(job, [tensor("x", x), *inputs[1:]]).as_numpy("x"), x.astype("f4"))


def test_outputs_are_binary_by_default_and_selected_by_name(client, job):
    inputs, _ = record(np.ones((2, 3)))
    assert [o["name"] for o in client.infer(job, inputs).get_response()["outputs"]] == ["x", "f", "s"]
    chosen = client.infer(job, inputs, outputs=[triton.InferRequestedOutput("f")])
    assert [o["name"] for o in chosen.get_response()["outputs"]] == ["f"]
    with pytest.raises(InferenceServerException, match="no output 'z'; it has: x, f, s"):
        client.infer(job, inputs, outputs=[triton.InferRequestedOutput("z")])


def test_classes_are_the_largest_values(client, job):
    inputs, _ = record(np.array([[0.1, 0.7, 0.2], [0.5, 0.25, 0.25]]))
    result = client.infer(job, inputs, outputs=[triton.InferRequestedOutput("x", class_count=2)])
    assert result.as_numpy("x").tolist() == [[b"0.7:1", b"0.2:2"], [b"0.5:0", b"0.25:1"]]
    with pytest.raises(InferenceServerException, match="'s' is object .* no classes"):
        client.infer(job, inputs, outputs=[triton.InferRequestedOutput("s", class_count=2)])


def test_metadata_is_the_models_own(client, job, report):
    metadata = client.get_model_metadata(job)
    assert (metadata["name"], metadata["versions"], metadata["platform"]) == (job, ["1"], "Echo")
    assert metadata["inputs"][1:] == [
        {"name": "f", "datatype": "FP32", "shape": [-1, 2, 3]},
        {"name": "s", "datatype": "BYTES", "shape": [-1, 2]},
    ]
    assert client.get_model_metadata(job, "1") == metadata
    config = client.get_model_config(job)
    assert config["max_batch_size"] == 8
    assert config["input"][1] == {"name": "f", "data_type": "TYPE_FP32", "dims": [2, 3]}
    assert config["instance_group"] == []
    assert client.get_server_metadata()["name"] == "cluster-serving"
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(job)
    assert not client.is_model_ready("another")
    rows = [row for row in client.get_model_repository_index() if row["name"] == job]
    assert rows == [{"name": job, "version": "1", "state": "READY", "reason": ""}]


def test_what_is_not_supported_is_said(client, job):
    for call in (
        client.get_trace_settings,
        lambda: client.update_log_settings({"log_verbose_level": 1}),
        client.get_system_shared_memory_status,
        client.unregister_cuda_shared_memory,
    ):
        with pytest.raises(
            InferenceServerException, match="is not supported here: there are no shared memory"
        ) as raised:
            call()
        assert raised.value.status() == "501"


def test_filtered_outputs_are_described_as_they_are(serve, report, job):
    front = serve()
    for text, expected in {
        "topN(3)": {"name": "x", "datatype": "BYTES", "shape": [-1, 3]},
        "pickTopN(2)": {"name": "x", "datatype": "FP32", "shape": [-1, -1, 4]},
    }.items():
        report(("x", "float32", (None, 9, 4)), post_processing=text)
        wait_until(lambda: httpx.get(f"{front.url}/v2/models/{job}").json()["outputs"] == [expected])  # noqa: B023
    # Of other filters the job reports what they have made of zeros.
    sent = (TensorSpec("x", "int64", (None,)),)
    report(("x", "float32", (None, 9)), post_processing="argmax", sent=sent)
    expected = {"name": "x", "datatype": "INT64", "shape": [-1]}
    wait_until(lambda: httpx.get(f"{front.url}/v2/models/{job}").json()["outputs"] == [expected])


def test_statistics_are_those_of_the_job(client, job, db):
    totals = {
        ANSWERED.name: 4,
        f"{FAILED.name}:INVALID_INPUT": 1,
        FAILED_TIME.name: 237,
        BATCH_SIZE.fields[0]: 1,
        BATCH_SIZE.fields[2]: 1,
        QUEUE_WAIT.sum: 4 * 30 + 5,
        RECORD_COMPUTE.name: 4 * 200 + 100,
        REQUEST.sum: 4 * 237 + 108,
    }
    db.hset(JobKeys(job).stats(), mapping={**totals, LAST_ANSWER: 1_700_000_000_000})
    row = client.get_inference_statistics(job)["model_stats"][0]
    assert (row["name"], row["inference_count"], row["execution_count"]) == (job, 4, 2)
    assert row["last_inference"] == 1_700_000_000_000
    assert {key: (part["count"], part["ns"]) for key, part in row["inference_stats"].items() if part["count"]} == {
        "success": (4, 1000 * (3 * 237 + 108)),
        "fail": (1, 237_000),
        "queue": (5, 125_000),
        "compute_input": (5, 0),
        "compute_infer": (5, 900_000),
        "compute_output": (5, 31_000),
    }
    assert row in client.get_inference_statistics()["model_stats"]
    db.delete(JobKeys(job).stats())


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_bodies_are_compressed_in_both_directions(client, job, algorithm, binary):
    inputs, _ = record(np.ones((20, 300)))
    algorithms = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    outputs = [triton.InferRequestedOutput("x", binary_data=binary)]
    result = client.infer(job, inputs, outputs=outputs, **algorithms)
    np.testing.assert_array_equal(result.as_numpy("x"), np.ones((20, 300)))
    with pytest.raises(InferenceServerException, match="has the inputs"):
        client.infer(job, inputs[:1], **algorithms)


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        (lambda i: i[:2], "400", "has the inputs 'x', 'f'; the model expects x: .*, s: str"),
        (lambda i: [*i[:2], tensor("z", np.ones((2, 2)))], "400", "'z'; the model expects"),
        (
            lambda i: [i[0], tensor("f", np.ones((2, 3), "f4")), i[2]],
            "400",
            r"'f' has shape \[2, 3\]; expected \[-1, 2, 3\]",
        ),
        (lambda i: [i[0], tensor("f", np.ones((2, 2, 4), "f4")), i[2]], "400", r"expected \[-1, 2, 3\]"),
        (lambda i: [i[0], tensor("f", np.ones((3, 2, 3), "f4")), i[2]], "400", "differ in their first dimension"),
        (lambda i: [tensor("x", np.ones((0, 3))), tensor("f", np.ones((0, 2, 3), "f4")), *i[2:]], "400", "differ"),
        (lambda i: [*i[:2], tensor("s", np.array([[b"\xff", b""]] * 2, object))], "400", "element 0 is not UTF-8"),
    ],
)
def test_wrong_inputs_are_refused_by_name(client, job, change, status, message):
    inputs, _ = record(np.ones((2, 3)))
    with pytest.raises(InferenceServerException, match=message) as raised:
        client.infer(job, change(inputs))
    assert raised.value.status() == status


def test_wrong_models_versions_and_parameters_are_refused(client, job):
    inputs, _ = record(np.ones((1, 3)))
    for name, version, options, status, message in [
        ("another", "", {}, "404", "there is no model 'another'"),
        (job, "2", {}, "404", "version '2'"),
        (job, "", {"sequence_id": 5}, "400", "sequence_id"),
        (job, "", {"timeout": -1}, "400", "timeout is -1"),
    ]:
        with pytest.raises(InferenceServerException, match=message) as raised:
            client.infer(name, inputs, model_version=version, **options)
        assert raised.value.status() == status
    client.infer(job, inputs, timeout=60_000_000)


def test_priorities_are_those_of_the_job(serve, report, job, db):
    report(("x", "float32", (None, 3)))
    x = tensor("x", np.ones((1, 3), "f4"))
    with triton.InferenceServerClient(serve().url.removeprefix("http://")) as client:
        for priority, stream in {0: job, 1: f"{job}:high", 2: job, 3: f"{job}:low", 9: f"{job}:low"}.items():
            with pytest.raises(InferenceServerException, match="no result"):
                client.infer(job, [x], priority=priority, timeout=100_000)
            # Withdrawn, the request leaves its stream empty.
            assert [name for name in JobKeys(job).streams if db.exists(name)] == [stream]
            db.delete(stream)
        # The parameter of the body goes before the header.
        for priority, stream in {0: f"{job}:low", 1: f"{job}:high"}.items():
            with pytest.raises(InferenceServerException, match="no result"):
                client.infer(job, [x], priority=priority, timeout=100_000, headers={"X-Priority": "low"})
            assert [name for name in JobKeys(job).streams if db.exists(name)] == [stream]
            db.delete(stream)


def test_the_timeout_of_a_request_counts(serve, report, job):
    report(("x", "float32", (None, 3)))
    with triton.InferenceServerClient(serve().url.removeprefix("http://")) as client:
        with pytest.raises(InferenceServerException, match="no result from job") as raised:
            client.infer(job, [tensor("x", np.ones((1, 3), "f4"))], timeout=100_000)
        assert raised.value.status() == "504"


def test_a_model_that_is_not_loaded_is_not_ready(serve, job, db):
    db.hset(JobKeys(job).slots(), "0", SlotReport("", "loading").to_json())
    front = serve(f"--models={job}")
    with triton.InferenceServerClient(front.url.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert not client.is_model_ready(job)
        assert client.get_model_repository_index()[0]["state"] == "LOADING"
        assert client.get_model_metadata(job)["inputs"] == []
        with pytest.raises(InferenceServerException, match="is not ready: loading") as raised:
            client.infer(job, [tensor("x", np.ones((1, 3)))])
        assert raised.value.status() == "503"
    db.delete(JobKeys(job).slots())


def test_jobs_that_take_batches_get_them_whole(serve, report, echo, job):
    report(("x", "float32", (None, 3)), already_batched=True)
    front = serve()
    x = np.arange(12, dtype="f4").reshape(4, 3)
    with triton.InferenceServerClient(front.url.removeprefix("http://")) as client:
        np.testing.assert_array_equal(client.infer(job, [tensor("x", x)]).as_numpy("x"), x)
        assert client.get_model_config(job)["max_batch_size"] == 0
        ranked = client.infer(job, [tensor("x", x)], outputs=[triton.InferRequestedOutput("x", class_count=1)])
        assert ranked.as_numpy("x").tolist() == [[b"2.0:2"], [b"5.0:2"], [b"8.0:2"], [b"11.0:2"]]


def test_the_asyncio_client_is_answered(front, job):
    async def main():
        async with triton_aio.InferenceServerClient(front.url.removeprefix("http://")) as client:
            assert await client.is_server_ready() and await client.is_model_ready(job)
            assert (await client.get_model_metadata(job))["name"] == job

            async def one(number, width=3, **options):
                inputs, _ = record(np.full((1 + number % 3, width), number))
                return (await client.infer(job, inputs, **options)).as_numpy("x")

            for algorithm in (None, "gzip", "deflate"):
                assert (await one(0, 3000, response_compression_algorithm=algorithm)).shape == (1, 3000)

            for number, answer in enumerate(await asyncio.gather(*(one(number) for number in range(200)))):
                np.testing.assert_array_equal(answer, np.full((1 + number % 3, 3), number))
            with pytest.raises(InferenceServerException, match="no model"):
                await client.get_model_metadata("another")

    asyncio.run(main())


def test_errors_have_the_form_of_the_protocol(front, job):
    answer = httpx.post(f"{front.url}/v2/models/{job}/infer", content=b"{")
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["error"]
    assert httpx.get(f"{front.url}/v2/models/{job}/infer").status_code == 405


def test_nothing_is_left_in_redis(client, job, db):
    inputs, _ = record(np.ones((16, 3)))
    client.infer(job, inputs)
    wait_until(lambda: not list(db.scan_iter(JobKeys(job).native_result("*"))) and db.xlen(job) == 0)
