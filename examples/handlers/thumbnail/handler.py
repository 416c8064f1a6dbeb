"""A photo of any size before an image classifier: its centre, scaled to the size that the model wants.

Beside this file: a classifier of images, such as model.onnx with the input float32 [?, 3, height, width] from 0 to 255.
"""

import cv2
import numpy as np

from cluster_serving.job.handlers import InvalidInput

LEAST = 8  # pixels


class Handler:
    inputs = {"photo": "image"}
    outputs = {"class": "int64", "probability": "float32", "thumbnail": "uint8[?, ?, 3]"}

    def load(self, context):
        self.model = context.load()
        (spec,) = self.model.inputs
        _, _, self.height, self.width = spec.shape

    def preprocess(self, request):
        photo = request["photo"]  # uint8 (height, width, 3), blue first
        height, width, _ = photo.shape
        if min(height, width) < LEAST:
            raise InvalidInput(f"the photo has {width} x {height} pixels; expected {LEAST} x {LEAST} or more")
        # The largest part of the centre that has the model's proportions.
        scale = min(height / self.height, width / self.width)
        high, wide = round(self.height * scale), round(self.width * scale)
        top, left = (height - high) // 2, (width - wide) // 2
        centre = photo[top : top + high, left : left + wide]
        return {"thumbnail": cv2.resize(centre, (self.width, self.height), interpolation=cv2.INTER_AREA)}

    def predict(self, batch):
        x = batch["thumbnail"].transpose(0, 3, 1, 2).astype(np.float32)
        (probabilities,) = self.model({self.model.inputs[0].name: x}).values()
        return {
            "class": probabilities.argmax(axis=1),
            "probability": probabilities.max(axis=1),
            "thumbnail": batch["thumbnail"],
        }
