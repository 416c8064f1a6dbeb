"""A DataStream job between two topics of Kafka: the pixels of a digit, and the digit that a model sees in them.

    flink run -py kafka_to_kafka.py JAR BROKER MODEL INPUT OUTPUT

JAR is flink-sql-connector-kafka-4.0.1-2.0.jar, and the topic INPUT has records such as {"id": 1, "pixels": [0.0, ...]}.
"""

import json
import sys

from pyflink.common import SimpleStringSchema, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors import kafka

from cluster_serving import Predictor
from cluster_serving.embed.flink import predict

jar, broker, model, source, sink = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment()
env.add_jars(f"file://{jar}")
env.enable_checkpointing(1000)

start = kafka.KafkaOffsetsInitializer.committed_offsets(kafka.KafkaOffsetResetStrategy.EARLIEST)
topic = kafka.KafkaSource.builder().set_bootstrap_servers(broker).set_topics(source).set_group_id("digits")
topic = topic.set_starting_offsets(start).set_value_only_deserializer(SimpleStringSchema()).build()
records = env.from_source(topic, WatermarkStrategy.no_watermarks(), source)
answered, failed = predict(records.map(json.loads), Predictor(model), lambda element: {"x": element["pixels"]})

texts = answered.map(
    lambda pair: json.dumps({"id": pair[0]["id"], "digit": int(pair[1]["probabilities"].argmax())}), Types.STRING()
).union(failed.map(lambda bad: json.dumps({"id": bad[0]["id"], "error": f"{bad[1]}: {bad[2]}"}), Types.STRING()))
values = kafka.KafkaRecordSerializationSchema.builder().set_topic(sink)
values = values.set_value_serialization_schema(SimpleStringSchema()).build()
texts.sink_to(kafka.KafkaSink.builder().set_bootstrap_servers(broker).set_record_serializer(values).build())
env.execute("digits of Kafka")
