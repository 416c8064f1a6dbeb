"""Anomalies in a time series: the stretches that an isolation forest finds unlike those of its training, as JSON.

Beside this file: features.py; and detector.joblib, written by train.py, which need not be here. A joblib file is a
pickle: loading it runs the code that it names, so serve only your own.
"""

import joblib
import numpy as np
from features import WINDOW, features, windows

from cluster_serving.job.handlers import InvalidInput


class Handler:
    inputs = {"values": "float32[?]"}
    outputs = {"anomalies": "str"}  # JSON

    def load(self, context):
        self.detector = joblib.load(context.folder / "detector.joblib")

    def preprocess(self, request):
        values = request["values"]
        if len(values) < WINDOW:
            raise InvalidInput(f"values has {len(values)} numbers; expected {WINDOW} or more")
        if not np.isfinite(values).all():
            index = np.flatnonzero(~np.isfinite(values))[0]
            raise InvalidInput(f"values[{index}] is {values[index]}; expected finite numbers")
        return {"features": features(values), "count": len(values)}

    def predict(self, batch):
        # Series of equal length have equally many windows: one call of the forest computes those of all.
        records, parts, size = batch["features"].shape
        scores = self.detector.decision_function(batch["features"].reshape(-1, size))
        return {"scores": scores.reshape(records, parts), "count": batch["count"]}

    def postprocess(self, result):
        found = []
        for start, score in zip(windows(result["count"]).tolist(), result["scores"].tolist(), strict=True):
            if score >= 0:
                continue
            if found and start <= found[-1]["end"]:
                found[-1] |= {"end": start + WINDOW, "score": min(score, found[-1]["score"])}
            else:
                found.append({"start": start, "end": start + WINDOW, "score": score})
        return {"anomalies": found}
