"""Clients whose requests make batches fail, beside others."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.support.fixtures.handled import write

FAILING = """
    class Handler:
        inputs = {"x": "float32[2]"}
        outputs = {"y": "float32[2]"}

        def predict(self, inputs):
            if (inputs["x"] < 0).any():
                raise ValueError("negative")
            return {"y": inputs["x"] * 2}
    """


def test_requests_that_make_batches_fail_are_kept_from_those_of_other_callers(served, front, tmp_path):
    write(tmp_path, FAILING)
    queue, _ = served(jobName="failing", modelPath=tmp_path)

    def send(_):
        body = {"instances": [{"x": [-1, -1]}]}
        return front.post("/models/failing/predict", json=body)

    with ThreadPoolExecutor(8) as senders:
        bad = senders.map(send, range(200))
        # All wait behind a search for the others' culprits, but none fails with them.
        good = list(queue.predict_many(({"x": np.full(2, at, "f4")} for at in range(2000)), in_flight=40))
        np.testing.assert_array_equal([result["y"][0] for result in good], 2 * np.arange(2000))
        for answer in bad:
            assert (answer.status_code, answer.json()["code"]) in {(500, "INFERENCE_FAILED"), (429, "QUEUE_FULL")}
