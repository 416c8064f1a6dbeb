#!/usr/bin/env bash
# Guess: a column of truth values that is a category has the categories "True" and "False", as pandas prints them.
# Happens: CatBoost reads true as the category "1" and false as "0". The text "True", which a CSV file has, is a
#   category that it has never seen, and is answered without a word.
# Since: CatBoost 1.2, the oldest that was tried.
# Ours: protocol/values/table.py makes 1 and 0 of truth values for categories.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 pandas==2.2.3 scipy==1.17.1 six==1.17.0
beside boosters catboost==1.2.10
PYTHONPATH=boosters venv/bin/python - <<'PYTHON'
import io

import catboost, numpy, pandas

random = numpy.random.default_rng(0)
frame = pandas.DataFrame({"member": random.random(200) > 0.5, "age": random.integers(18, 90, 200)})
price = frame.member * 3 + frame.age / 100
options = {"iterations": 20, "verbose": False, "thread_count": 1, "allow_writing_files": False}
model = catboost.CatBoostRegressor(**options, cat_features=["member"], one_hot_max_size=1).fit(frame, price)

found = {}
for told in (True, False, "1", "0", "True", "False", "never seen"):
    found[told] = float(model.predict(pandas.DataFrame({"member": [told], "age": [40]}))[0])
    print(f"{told!r:>12}: {found[told]:.3f}")
assert found[True] == found["1"] and found[False] == found["0"] and found[True] - found[False] > 2
assert found["True"] == found["False"] == found["never seen"]

text = io.StringIO(frame.to_csv(index=False))
read = pandas.read_csv(text, dtype={"member": str})
error = abs(model.predict(read) - model.predict(frame)).max()
print(f"the frame through CSV, with texts for the categories: answers differ by up to {error:.2f}")
assert error > 2
PYTHON
