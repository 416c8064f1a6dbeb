"""Segmentation: an image of any size becomes a mask of the same size, a PNG as base64 text, and the area of each class.

Beside this file: a model such as model.onnx, and labels.txt with a label per line. The model's input is float32
[?, 3, height, width] from 0 to 1, red first; its output is float32 [?, classes, height, width], and the class with the
largest number is the class of a pixel. A pixel of the mask is the number of its class, so a viewer shows it nearly
black.
"""

import base64

import cv2
import numpy as np

from cluster_serving.job.handlers import InvalidInput


class Handler:
    inputs = {"image": "image"}
    outputs = {"mask": "str", "areas": "str"}  # areas is JSON

    def load(self, context):
        self.model = context.load()
        (self.input,) = self.model.inputs
        self.labels = (context.folder / "labels.txt").read_text().splitlines()

    def preprocess(self, request):
        height, width, _ = request["image"].shape
        if max(height, width) > 20 * min(height, width):
            raise InvalidInput(f"image has {width} x {height} pixels; expected sides that differ by 20 times or less")
        *_, wanted_height, wanted_width = self.input.shape
        scaled = cv2.resize(request["image"], (wanted_width, wanted_height), interpolation=cv2.INTER_AREA)
        x = scaled[:, :, ::-1].transpose(2, 0, 1).astype(np.float32) / 255
        return {"x": x, "size": np.array([width, height])}

    def predict(self, batch):
        (scores,) = self.model({self.input.name: batch["x"]}).values()
        return {"classes": scores.argmax(axis=1).astype(np.uint8), "size": batch["size"]}

    def postprocess(self, result):
        # The nearest pixel: between two classes there is no other one.
        mask = cv2.resize(result["classes"], result["size"].tolist(), interpolation=cv2.INTER_NEAREST)
        shares = np.bincount(mask.ravel(), minlength=len(self.labels)) / mask.size
        png = cv2.imencode(".png", mask)[1].tobytes()
        return {
            "mask": base64.b64encode(png).decode(),
            "areas": {label: round(float(share), 4) for label, share in zip(self.labels, shares, strict=True) if share},
        }
