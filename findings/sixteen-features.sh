#!/usr/bin/env bash
# Guess: the nearest neighbour of a record of the training is that record, whatever the number of features.
# Happens: from 16 features on KNeighborsClassifier computes distances as |x|² + |y|² - 2xy instead of by a tree. With
#   one feature in seconds since 1970, all differences below some 25 s are rounded off: four of five neighbours are
#   wrong. With 15 features, or algorithm="kd_tree", none is.
# Since: scikit-learn 1.2.0, the oldest that was tried.
# Ours: job/models/tabular/scikit_learn.py computes with the estimator as it was trained.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 scikit-learn==1.9.1
venv/bin/python - <<'PYTHON'
import numpy
from sklearn.neighbors import KNeighborsClassifier

random = numpy.random.default_rng(0)
seen = {}
for size, algorithm in (15, "auto"), (16, "auto"), (16, "kd_tree"):
    records = random.normal(size=(500, size))
    records[:, 0] = 1_764_000_000 + 10 * numpy.arange(500)
    model = KNeighborsClassifier(1, algorithm=algorithm).fit(records, numpy.arange(500) % 2)
    found = model.kneighbors(records, 1, return_distance=False)[:, 0]
    seen[size, algorithm] = (found == numpy.arange(500)).mean()
    print(f"{size} features, {algorithm}: {seen[size, algorithm]:.0%} of 500 records are their own nearest neighbour")
assert seen[15, "auto"] == seen[16, "kd_tree"] == 1 and seen[16, "auto"] < 0.5, seen
PYTHON
