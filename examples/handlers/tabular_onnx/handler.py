"""A table's row before a model of numbers: fields are checked, all at once, and become its features.

Beside this file: features.py; and a classifier of two classes, such as model.onnx with the input float32 [?, 9] and the
output of probabilities float32 [?, 2]. One from scikit-learn is converted by skl2onnx with the option zipmap=False.
"""

import numpy as np
from features import problems, vector

from cluster_serving.job.handlers import InvalidInput

LIMIT = 0.2


class Handler:
    inputs = {"amount": "float64", "income": "float64", "age": "int64", "purpose": "str", "applied": "str"}
    outputs = {"risk": "float32", "decision": "str"}

    def load(self, context):
        self.model = context.load()
        (self.input,) = self.model.inputs
        # The last output: scikit-learn's first one is the label.
        self.output = self.model.outputs[-1].name

    def preprocess(self, request):
        if found := problems(request):
            raise InvalidInput("; ".join(found))
        return {"x": np.array(vector(request), np.float32)}

    def predict(self, batch):
        return {"risk": self.model({self.input.name: batch["x"]})[self.output][:, 1]}

    def postprocess(self, result):
        return result | {"decision": "accept" if result["risk"] < LIMIT else "look at it"}
