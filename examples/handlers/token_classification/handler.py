"""Names in a text: what they are and where they stand, from a model that labels every token.

Beside this file: the model, such as model.onnx, its tokenizer.json, and labels.txt with a label per line, such as O,
B-PER and I-PER: nothing, the beginning of a person's name, and a further token of it.
"""

import numpy as np


class Handler:
    inputs = {"text": "str"}
    outputs = {"entities": "str"}  # JSON

    def load(self, context):
        self.model = context.load()
        self.tokenizer = context.tokenizer
        self.labels = (context.folder / "labels.txt").read_text().split()

    def predict(self, batch):
        # An array (tokens, labels) for each text.
        (scores,) = self.model({"text": batch["text"]}).values()
        return {"scores": scores, "text": batch["text"]}

    def postprocess(self, result):
        text, entities, inside = result["text"], [], None
        encoding = self.tokenizer.encode(text)
        odds = np.exp(result["scores"] - result["scores"].max(axis=1, keepdims=True))
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        tokens = zip(encoding.offsets, encoding.special_tokens_mask, probabilities, strict=True)
        for (start, end), special, row in tokens:
            mark, _, kind = self.labels[row.argmax()].partition("-")
            if special or mark == "O":
                inside = None
            elif mark == "I" and kind == inside:
                entities[-1]["end"] = end
                entities[-1]["score"] = min(entities[-1]["score"], row.max())
            else:
                inside = kind
                entities.append({"kind": kind, "start": start, "end": end, "score": row.max()})
        return {"entities": [entity | {"text": text[entity["start"] : entity["end"]]} for entity in entities]}
