"""Answers in pieces: a client has each one before the next is made."""

import numpy as np

from tests.support.fixtures.handled import write

PATIENT = """
    import time
    from pathlib import Path

    class Handler:
        inputs = {"count": "int64"}

        def predict(self, batch):
            for step in range(batch["count"].max()):
                yield {"number": [step] * len(batch["count"])}
                while batch["count"].max() > 9 and Path(SEEN).read_text() != str(step):
                    time.sleep(0.005)
    """


def test_pieces_arrive_as_they_are_made(served, tmp_path):
    seen = tmp_path / "seen"
    seen.touch()
    model = tmp_path / "model"
    model.mkdir()
    write(model, PATIENT.replace("SEEN", repr(str(seen))))
    queue, _ = served(jobName="pieces", modelPath=model)
    for number, piece in enumerate(queue.stream({"count": np.int64(20)}, timeout=60)):
        assert piece["number"] == number
        # The next one is made when this one was seen.
        seen.write_text(str(number))
    assert queue.predict({"count": np.int64(3)}, timeout=60)["number"].tolist() == [0, 1, 2]
