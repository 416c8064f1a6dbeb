#!/usr/bin/env bash
# Guess: a reader of JSON lines that takes types from the first lines raises if a later line has a field more, or a
#   fraction.
# Happens: Polars leaves out the field that comes late, without a word, and DuckDB rounds the late fraction to an
#   integer. Each raises at what the other lets pass; PyArrow keeps both.
# Since: DuckDB 1.5; 1.0.0 to 1.4.5 read both files rightly. Polars leaves the field out since 0.20.31, the oldest
#   that was tried; up to 1.33.1 it cut the fraction to an integer, and 1.44.2 refuses it.
# Ours: embed/units.py reads by PyArrow, in blocks.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0
venv/bin/python - <<'PYTHON'
import json

import duckdb, polars, pyarrow.json

COUNT = 50_000
files = {"field.jsonl": {"a": 1, "late": 7}, "fraction.jsonl": {"a": 1.75}}
for name, last in files.items():
    with open(name, "w") as file:
        file.writelines(json.dumps({"a": 1}) + "\n" for _ in range(COUNT - 1))
        file.write(json.dumps(last) + "\n")
blocks = pyarrow.json.ReadOptions(block_size=4096)
readers = {
    "duckdb": lambda name: duckdb.sql(f"SELECT * FROM read_json('{name}')").fetchall()[-1],
    "polars": lambda name: polars.read_ndjson(name).rows()[-1],
    "pyarrow": lambda name: tuple(pyarrow.json.read_json(name, blocks).slice(COUNT - 1).to_pylist()[0].values()),
}
seen = {}
for name, last in files.items():
    for reader, read in readers.items():
        try:
            seen[name, reader] = read(name)
        except (duckdb.Error, polars.exceptions.PolarsError) as error:
            seen[name, reader] = "refused"
            print(f"{reader}: {str(error).splitlines()[0][:110]}")
        print(f"last line {last}, read by {reader}: {seen[name, reader]}")
assert list(seen.values()) == ["refused", (1,), (1, 7), (2,), "refused", (1.75,)], seen
PYTHON
