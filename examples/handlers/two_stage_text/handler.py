"""Texts in two stages: a model tells the language, and the model of that language classifies the text.

Beside this file: features.py; language.onnx; and for each line of languages.txt, such as `en`, a model en.onnx. The
models take float32 [?, 512] and return probabilities; those of the languages are of the classes in classes.txt.
"""

import numpy as np
from features import features

from cluster_serving.job.handlers import InvalidInput


class Handler:
    inputs = {"text": "str"}
    outputs = {"language": "str", "class": "str", "probability": "float32"}

    def load(self, context):
        self.languages = (context.folder / "languages.txt").read_text().split()
        self.classes = (context.folder / "classes.txt").read_text().split()
        self.language = context.load("language.onnx")
        self.classifiers = [context.load(f"{name}.onnx") for name in self.languages]

    def preprocess(self, request):
        if not request["text"].strip():
            raise InvalidInput("the text is empty")
        return {"x": features(request["text"])}

    def predict(self, batch):
        languages = _only(self.language(batch)).argmax(axis=1)
        probabilities = np.zeros((len(languages), len(self.classes)), np.float32)
        for index, classifier in enumerate(self.classifiers):
            # The second stage computes a batch per language, of the records in it.
            rows = np.flatnonzero(languages == index)
            if len(rows):
                probabilities[rows] = _only(classifier({"x": batch["x"][rows]}))
        return {
            "language": [self.languages[index] for index in languages],
            "class": [self.classes[index] for index in probabilities.argmax(axis=1)],
            "probability": probabilities.max(axis=1),
        }


def _only(outputs):
    (value,) = outputs.values()
    return value
