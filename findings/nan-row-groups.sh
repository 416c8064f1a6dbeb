#!/usr/bin/env bash
# Guess: how a Parquet file is cut into row groups changes the speed of a filter, and no answer.
# Happens: DuckDB holds NaN larger than all numbers, and skips row groups by their largest number, which leaves NaN
#   out. So "x > 100" and "x = 'nan'" find a NaN where it is alone in its row group, and not beside others. Polars,
#   which orders NaN alike, finds it always; to pandas and PyArrow it is larger than nothing.
# Since: DuckDB 0.8.1, the oldest that was tried.
# Ours: embed/units.py reads whole row groups, without a filter.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0
venv/bin/python - <<'PYTHON'
import duckdb, polars, pyarrow
from pyarrow import parquet

rows = pyarrow.table({"x": [1.0, 2.0, 3.0, 4.0, float("nan"), 6.0]})
seen = {}
for size in 6, 1:
    name = f"{size}.parquet"
    parquet.write_table(rows, name, row_group_size=size)
    count = lambda source, text: duckdb.sql(f"SELECT count(*) FROM {source} WHERE {text}").fetchall()[0][0]
    seen[size] = {
        "duckdb x > 100": count(f"'{name}'", "x > 100"),
        "duckdb x = 'nan'": count(f"'{name}'", "x = 'nan'::DOUBLE"),
        "duckdb nan > 100": duckdb.sql("SELECT 'nan'::DOUBLE > 100").fetchall()[0][0],
        "polars x > 100": polars.scan_parquet(name).filter(polars.col("x") > 100).collect().height,
        "pyarrow x > 100": parquet.read_table(name, filters=[("x", ">", 100.0)]).num_rows,
    }
    print(f"{size} rows a row group:", seen[size])
assert list(seen[6].values()) == [0, 0, True, 1, 0] and list(seen[1].values()) == [1, 1, True, 1, 0], seen
PYTHON
