"""Running jobs as models of SQL, by Flink's provider for OpenAI's API: a vector and an answer for each text.

    flink run -py served.py JAR ADDRESS JOB INPUT OUTPUT

JAR is flink-model-openai-2.3.0.jar, ADDRESS is that of the front end, and INPUT has lines such as
{"id": 1, "line": "..."}.
"""

import sys

from pyflink.table import EnvironmentSettings, TableEnvironment

jar, address, job, source, sink = sys.argv[1:]
session = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
session.get_config().set("pipeline.jars", f"file://{jar}")
for name, path, output in (
    ("embedder", "embeddings", "vector ARRAY<FLOAT>"),
    ("talker", "chat/completions", "answer STRING"),
):
    session.execute_sql(f"""
        CREATE MODEL {name} INPUT (line STRING) OUTPUT ({output})
        WITH ('provider' = 'openai', 'endpoint' = '{address}/v1/{path}', 'api-key' = 'none', 'model' = '{job}')
    """)
files = "'connector' = 'filesystem', 'format' = 'json', 'path' ="
session.execute_sql(f"CREATE TABLE lines (id INT, line STRING) WITH ({files} '{source}')")
session.execute_sql(f"CREATE TABLE found (id INT, vector ARRAY<FLOAT>, answer STRING) WITH ({files} '{sink}')")
session.execute_sql("""
    CREATE TEMPORARY VIEW vectors AS SELECT * FROM ML_PREDICT(TABLE lines, MODEL embedder, DESCRIPTOR(line))
""")
session.execute_sql("""
    INSERT INTO found
    SELECT id, vector, answer FROM ML_PREDICT(TABLE vectors, MODEL talker, DESCRIPTOR(line))
""").wait()
