"""Text, character by character, by a recurrent network whose state goes from step to step.

Beside this file, from train.py: characters.txt, and step.onnx with the inputs `character` int64 [?] and `state` float32
[?, n], and the outputs `logits` and `next_state`.
"""

import numpy as np

from cluster_serving.job.handlers import END, InvalidInput


class Handler:
    inputs = {"prompt": "str", "max_tokens": "int64", "temperature": "float32"}
    outputs = {"text": "str", "finish_reason": "str"}

    def load(self, context):
        self.characters = (context.folder / "characters.txt").read_text()
        self.step = context.load("step.onnx")
        self.random = np.random.default_rng()

    def preprocess(self, request):
        known = [self.characters.index(one) for one in request["prompt"] if one in self.characters]
        if not known:
            raise InvalidInput("the prompt has none of the characters that the model knows")
        if request["max_tokens"] < 0:
            raise InvalidInput(f"max_tokens is {request['max_tokens']}; expected 0 or more")
        # A list, unlike an array, may have another length than those of its batch.
        return {"prompt": known, "most": request["max_tokens"], "temperature": request["temperature"]}

    def predict(self, batch):
        pairs = [self.read(prompt) for prompt in batch["prompt"]]
        logits, states = map(np.stack, zip(*pairs, strict=True))
        for count in range(1, batch["most"].max() + 2):
            chosen = [self.choose(*pair) for pair in zip(logits, batch["temperature"], strict=True)]
            yield [self.piece(one, count, most) for one, most in zip(chosen, batch["most"], strict=True)]
            outputs = self.step({"character": np.array(chosen), "state": states})
            logits, states = outputs["logits"], outputs["next_state"]

    def read(self, prompt):
        state = np.zeros((1, self.step.inputs[1].shape[-1]), np.float32)
        for one in prompt:
            outputs = self.step({"character": np.array([one]), "state": state})
            state = outputs["next_state"]
        return outputs["logits"][0], state[0]

    def choose(self, logits, temperature):
        if temperature <= 0:
            return int(logits.argmax())
        weights = np.exp((logits - logits.max()) / temperature)
        return int(self.random.choice(len(weights), p=weights / weights.sum()))

    def piece(self, chosen, count, most):
        if count > most:
            return END
        return {"text": self.characters[chosen], "finish_reason": "length" if count == most else ""}
