"""Job that copies lines of a file to a topic of Kafka, and the records of another topic to files.

Arguments are the jar of the connector, the broker, the file, the two topics, and the folder of the output. It creates
the topics: a source that does not find its topic fails, and Flink waits longer before each further try.
"""

import sys

from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment

jar, broker, source, first, second, sink = sys.argv[1:]
session = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
session.get_config().set("pipeline.jars", f"file://{jar}")
session.get_config().set("execution.checkpointing.interval", "500 ms")
kafka = get_gateway().jvm.org.apache.flink.kafka.shaded.org.apache.kafka.clients.admin
admin = kafka.Admin.create({"bootstrap.servers": broker})
admin.createTopics([kafka.NewTopic(topic, 1, 1) for topic in (first, second)]).all().get()
admin.close()
KAFKA = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{broker}', 'format' = 'raw'"
ROLLING = "'sink.rolling-policy.rollover-interval' = '1 s', 'sink.rolling-policy.check-interval' = '500 ms'"
for name, options in {
    "lines": f"'connector' = 'filesystem', 'path' = '{source}', 'format' = 'raw'",
    "asked": f"{KAFKA}, 'topic' = '{first}'",
    "answered": f"{KAFKA}, 'topic' = '{second}', 'scan.startup.mode' = 'earliest-offset'",
    "found": f"'connector' = 'filesystem', 'path' = '{sink}', 'format' = 'raw', {ROLLING}",
}.items():
    session.execute_sql(f"CREATE TABLE {name} (line STRING) WITH ({options})")
statements = session.create_statement_set()
statements.add_insert_sql("INSERT INTO asked SELECT line FROM lines")
statements.add_insert_sql("INSERT INTO found SELECT line FROM answered")
statements.execute().wait()
