"""Lines of a list of classes for the classes of Flink's RPC system, from the log of a JVM."""

from pathlib import Path

from cluster_serving.launcher.services import rpc_classes

LOG = """\
java.lang.Object source: shared objects file
 klass: 0x01 super: 0x00 loader: [loader data: 0xa of 'bootstrap']
scala.Proxy source: jrt:/java.base
 klass: 0x02 super: 0x01 loader: [loader data: 0xa of 'bootstrap']
scala.Proxy source: file:/home/flink-1/tmp/flink-rpc-akka1-2.jar
 klass: 0x03 super: 0x01 interfaces: 0x02 loader: [loader data: 0xb a 'Submodule'{0x0f}]
pekko.Unlisted source: file:/dist.jar
 klass: 0x04 super: 0x01 loader: [loader data: 0xa of 'app']
pekko.Actor source: file:/home/flink-1/tmp/flink-rpc-akka1-2.jar
 klass: 0x05 super: 0x03 interfaces: 0x02 0x03 loader: [loader data: 0xb a 'Submodule'{0x0f}]
pekko.Left source: file:/home/flink-1/tmp/flink-rpc-akka1-2.jar
 klass: 0x06 super: 0x04 loader: [loader data: 0xb a 'Submodule'{0x0f}]
pekko.Below source: file:/home/flink-1/tmp/flink-rpc-akka1-2.jar
 klass: 0x07 super: 0x06 loader: [loader data: 0xb a 'Submodule'{0x0f}]
"""


def test_classes_of_its_jar_are_listed_by_what_they_extend_and_others_as_they_were():
    lines = rpc_classes.extended(["java/lang/Object", "@lambda-proxy a", "scala/Proxy"], [LOG, LOG], Path("/rpc.jar"))
    assert lines == [
        "java/lang/Object id: 0",
        "@lambda-proxy a",
        "scala/Proxy id: 1",
        "scala/Proxy id: 2 super: 0 interfaces: 1 source: /rpc.jar",
        "pekko/Actor id: 3 super: 2 interfaces: 1 2 source: /rpc.jar",
    ]
