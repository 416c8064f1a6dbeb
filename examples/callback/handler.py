"""A picture of the Mandelbrot set, which takes some seconds: the kind of work that a client does not wait for."""

import base64

import cv2
import numpy as np


class Handler:
    inputs = {"x": "float64", "y": "float64", "width": "float64", "steps": "int64"}
    outputs = {"png": "str"}

    def predict(self, batch):
        columns = [batch[name] for name in self.inputs]
        return {"png": [self.drawn(*map(float, record)) for record in zip(*columns, strict=True)]}

    def drawn(self, x, y, width, steps, size=320):
        steps = max(int(steps), 1)  # the zeros of the first call have none
        line = np.linspace(-width / 2, width / 2, size)
        c = x + line + 1j * (y + line[:, np.newaxis])
        z, left = np.zeros_like(c), np.zeros(c.shape)
        for _ in range(steps):
            inside = np.abs(z) < 2
            z[inside] = z[inside] ** 2 + c[inside]
            left += inside
        colours = cv2.applyColorMap(np.uint8(255 * np.sqrt(left / steps)), cv2.COLORMAP_TWILIGHT_SHIFTED)
        return base64.b64encode(cv2.imencode(".png", colours)[1]).decode()
