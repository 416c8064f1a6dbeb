"""A SQL session: a model as a function of SQL, over files of JSON lines.

    flink run -py session.py MODEL INPUT OUTPUT

INPUT has lines such as {"id": 1, "pixels": [0.0, ...]}.
"""

import sys

from pyflink.table import EnvironmentSettings, TableEnvironment

from cluster_serving import Predictor
from cluster_serving.embed.flink import function

model, source, sink = sys.argv[1:]
session = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
session.create_temporary_system_function("digit", function(Predictor(model), errors=True))
session.execute_sql(f"""
    CREATE TABLE digits (id INT, pixels ARRAY<FLOAT>)
    WITH ('connector' = 'filesystem', 'path' = '{source}', 'format' = 'json')
""")
session.execute_sql(f"""
    CREATE TABLE answers (id INT, probabilities ARRAY<FLOAT>, error STRING)
    WITH ('connector' = 'filesystem', 'path' = '{sink}', 'format' = 'json')
""")
session.execute_sql("""
    INSERT INTO answers
    SELECT id, answer.probabilities, answer.error FROM (SELECT id, digit(pixels) AS answer FROM digits)
""").wait()
