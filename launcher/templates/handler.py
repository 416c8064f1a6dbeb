"""Your own code around the model. Delete what you do not need; docs/how-to/handlers.md explains every method.

Try it with: cluster-serving-cli try model --input x=[1,2,3]
"""

from typing import Any

from cluster_serving.job.handlers import Context, InvalidInput


class Handler:
    """One instance per task slot."""

    # Inputs and outputs of one record: "float32[3]", "int64[?]", "str", "image" and so on. Requests are checked and
    # converted. Without `inputs`, anything is taken.
    inputs = {"x": "float32[3]"}
    outputs = {"y": "float32[3]", "about": "str"}

    def load(self, context: Context) -> None:
        """Prepare for requests: called once."""
        # For a model of this folder: self.encoder = context.load("encoder.onnx")
        self.factor = 2

    def preprocess(self, request: dict[str, Any]) -> dict[str, Any]:
        """Convert the inputs of one request; `InvalidInput` refuses it."""
        if (request["x"] < 0).any():
            raise InvalidInput("x has negative numbers")
        return {"x": request["x"] + 1}

    def predict(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Compute n records at once: arrays are (n, 3) here. Without this method, the model of the folder does."""
        return {"y": batch["x"] * self.factor}

    def postprocess(self, result: dict[str, Any]) -> dict[str, Any]:
        """Convert the outputs of one record; a dict or a list as a value is sent as JSON."""
        return {"y": result["y"], "about": f"the sum is {result['y'].sum():g}"}

    def unload(self) -> None:
        """Release what `load` has taken."""
