#!/usr/bin/env bash
# Guess: BPE dropout, like all dropout, belongs to the training; a tokenizer read from its file does without.
# Happens: tokenizer.json keeps it, and each call draws: one text has several ids, so that one request has several
#   answers. No mode turns it off; it is off after model.dropout = None.
# Since: tokenizers 0.13.3, the oldest that was tried.
# Ours: job/models/text/tokenizer.py takes the dropout out when it loads the file.
. "$(dirname "$0")/support/venv.sh"
packages tokenizers==0.23.3
venv/bin/python - <<'PYTHON'
from tokenizers import Tokenizer, models

vocabulary = {"a": 0, "b": 1, "ab": 2, "abab": 3}
Tokenizer(models.BPE(vocabulary, [("a", "b"), ("ab", "ab")], dropout=0.3)).save("tokenizer.json")
tokenizer = Tokenizer.from_file("tokenizer.json")
drawn = {tuple(tokenizer.encode("abab").ids) for _ in range(300)}
print("300 calls with one text, read from a file with dropout 0.3:", sorted(drawn))
model = tokenizer.model
model.dropout = None
tokenizer.model = model
plain = {tuple(tokenizer.encode("abab").ids) for _ in range(300)}
print("without dropout:", plain)
assert len(drawn) > 2 and plain == {(3,)}, (drawn, plain)
PYTHON
