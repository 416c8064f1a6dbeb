#!/usr/bin/env bash
# Guess: a call with truncation and padding leaves the tokenizer as it was, at least since Transformers 5.
# Happens: save_pretrained writes the settings of the last call into tokenizer.json, and a plain call takes them out
#   again. Transformers sets them at each call, and so hides it; the package tokenizers, on which servers stand, cuts
#   each text of that file and fills it up.
# Since: Transformers 4.30.2 with tokenizers 0.13.3, the oldest that were tried.
# Ours: job/models/text/tokenizer.py takes the padding out, and keeps the limit of the file unless maxTokens is set.
. "$(dirname "$0")/support/venv.sh"
packages transformers==5.24.0 tokenizers==0.23.3
venv/bin/python - 2>log <<'PYTHON'
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
text, seen = "a b a b a", []


def save(after):
    tokenizer.save_pretrained("saved")
    ids = Tokenizer.from_file("saved/tokenizer.json").encode(text).ids
    again = PreTrainedTokenizerFast.from_pretrained("saved")(text)["input_ids"]
    seen.append(ids)
    print(f"saved after {after}: tokenizers {ids}, transformers {again}")
    assert again == [2, 3, 2, 3, 2]


save("no call")
tokenizer(text, truncation=True, max_length=3)
save("truncation")
tokenizer("a", padding="max_length", max_length=7)
save("padding")
tokenizer(text)
save("a plain call")
assert seen == [[2, 3, 2, 3, 2], [2, 3, 2], [2, 3, 2, 3, 2, 0, 0], [2, 3, 2, 3, 2]], seen
PYTHON
