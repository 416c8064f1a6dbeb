"""Detection of objects: boxes of any image, without those that overlap a better one (non-maximum suppression).

Beside this file are a detector, such as model.onnx, and labels.txt with a label per line. The detector's input is
float32 [?, 3, height, width] from 0 to 1. Its outputs are `scores` [?, n, classes] and `boxes` [?, n, 4]: left, top,
right and bottom, from 0 to 1.
"""

import cv2
import numpy as np

LEAST_SCORE = 0.5
MOST_OVERLAP = 0.45


class Handler:
    inputs = {"image": "image"}
    outputs = {"objects": "str"}  # JSON

    def load(self, context):
        self.model = context.load()
        self.input = self.model.inputs[0]
        self.labels = (context.folder / "labels.txt").read_text().splitlines()

    def preprocess(self, request):
        height, width, _ = request["image"].shape
        *_, wanted_height, wanted_width = self.input.shape
        scaled = cv2.resize(request["image"], (wanted_width, wanted_height))
        x = scaled[:, :, ::-1].transpose(2, 0, 1).astype(np.float32) / 255  # red first, channels first
        # Values that the model does not take go with the record.
        return {"x": x, "size": np.array([width, height, width, height])}

    def predict(self, batch):
        return self.model({self.input.name: batch["x"]}) | {"size": batch["size"]}

    def postprocess(self, result):
        classes, scores = result["scores"].argmax(axis=1), result["scores"].max(axis=1)
        pixels = result["boxes"] * result["size"]
        objects = []
        for index in suppressed(result["boxes"], scores, classes):
            label = self.labels[classes[index]]
            objects.append({"label": label, "score": scores[index], "box": pixels[index].round().astype(int)})
        return {"objects": objects}


def suppressed(boxes, scores, classes):
    """Return the indices of the best boxes that do not overlap a better one of their class, best first."""
    corners, sizes = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    # Boxes of different classes are moved apart, so that they never overlap.
    apart = np.concatenate([corners + 2 * classes[:, np.newaxis], sizes], axis=1)
    return cv2.dnn.NMSBoxes(apart.tolist(), scores.tolist(), LEAST_SCORE, MOST_OVERLAP)
