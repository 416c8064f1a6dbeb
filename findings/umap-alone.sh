#!/usr/bin/env bash
# Guess: UMAP with a random_state maps a record to one point: transform() is a function of the record.
# Happens: it is one of the whole call. The record lands elsewhere alone than with three others, by a fifth of the
#   spread of the map or more, and each of the two answers comes again bit by bit, so that a trial with a seed finds
#   nothing.
# Since: umap-learn 0.5.9.post2, the oldest that runs with scikit-learn 1.9.1.
# Ours: job/models/batched/influence.py changes the other records of a call, and models whose rows follow get one a
#   call.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 scikit-learn==1.9.1 umap-learn==0.5.12
# Without compilation: 10 s of a core in the place of a minute.
NUMBA_DISABLE_JIT=1 venv/bin/python - <<'PYTHON'
import numpy, umap

random = numpy.random.default_rng(0)
model = umap.UMAP(random_state=0, n_neighbors=10, n_epochs=50).fit(random.normal(size=(300, 8)))
records = random.normal(size=(4, 8))
together, again = model.transform(records), model.transform(records)
alone, alone_again = (numpy.concatenate([model.transform(record[None]) for record in records]) for _ in range(2))
moved = abs(together - alone).max(axis=1)
print("spread of the map:", model.embedding_.std(axis=0), "- alone and together differ by", moved)
assert (together == again).all() and (alone == alone_again).all() and moved.max() > 0.1, moved
PYTHON
