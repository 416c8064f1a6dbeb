#!/usr/bin/env bash
# Guess: numpy.save of an array of bfloat16 either keeps the type or raises.
# Happens: it writes raw bytes of two ("|V2") without a word, and float8 and int4 both become "|V1": the file no
#   longer says which of them it was. numpy.load succeeds, too; the fault shows where somebody computes.
# Since: ml_dtypes 0.1.0 with NumPy 1.23.5; int4 with ml_dtypes 0.2.0, which was the first to have that type.
# Ours: client/convert.py sends bfloat16 as float32.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 ml-dtypes==0.6.0
venv/bin/python - <<'PYTHON'
import ml_dtypes, numpy

read = {}
for name in "bfloat16", "float8_e4m3fn", "int4":
    numpy.save("array.npy", numpy.arange(4).astype(getattr(ml_dtypes, name)))
    read[name] = numpy.load("array.npy").dtype.str
    print(f"saved {name}, read {read[name]}")
assert read == {"bfloat16": "|V2", "float8_e4m3fn": "|V1", "int4": "|V1"}, read
PYTHON
