"""An ensemble: all models of the folder answer, of whatever engines, and their probabilities are averaged.

Beside this file: two or more classifiers with equal inputs and classes, such as a.onnx, b.xml with b.bin, and c.pt.
"""

import numpy as np

SUFFIXES = (".onnx", ".xml", ".pt", ".pt2", ".keras")


class Handler:
    inputs = {"x": "float32[64]"}
    outputs = {"class": "int64", "probabilities": "float32[?]", "agreement": "float32"}

    def load(self, context):
        names = sorted(path.name for path in context.folder.iterdir() if path.suffix in SUFFIXES)
        self.models = [context.load(name, input_shapes=[[64]] if name.endswith(".pt") else ()) for name in names]

    def predict(self, batch):
        answers = []
        for model in self.models:
            (probabilities,) = model({model.inputs[0].name: batch["x"]}).values()
            answers.append(probabilities)
        mean = np.mean(answers, axis=0)
        votes = np.argmax(answers, axis=2)  # (models, n)
        return {
            "class": mean.argmax(axis=1),
            "probabilities": mean,
            # The part of the models that have the ensemble's opinion.
            "agreement": (votes == mean.argmax(axis=1)).mean(axis=0, dtype=np.float32),
        }
