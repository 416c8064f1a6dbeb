#!/bin/bash
# Entry point of the pods: says what the image lacks, and starts Flink as the image does.

end() {
    echo "$1" >&2
    # Becomes part of the status of the pod.
    if [ -w /dev/termination-log ]; then echo "$1" > /dev/termination-log; fi
    exit 1
}

flink=${FLINK_HOME:-/opt/flink}
python=${CLUSTER_SERVING_PYTHON:-python}

for folder in $CLUSTER_SERVING_FOLDERS; do
    [ -d "$folder" ] || end "$folder is not on the volume: start the job again, which copies it there"
done

jars() {
    find "$1" -name "flink-python-*.jar" 2> /dev/null
}
if [ -z "$(jars "$flink/lib")" ]; then
    jar=$(jars "$flink/opt")
    [ -n "$jar" ] || end "the image has no flink-python-*.jar in $flink/lib or $flink/opt: use an image of Flink 2.3"
    # Thread mode loads a native library, which a JVM takes from one class loader only: that of its class path.
    export HADOOP_CLASSPATH=$jar${HADOOP_CLASSPATH:+:$HADOOP_CLASSPATH}
fi

[ -w "${HOME:-/}" ] || export HOME=/tmp

command -v "$python" > /dev/null || end "the image has no program $python: use an image with cluster-serving, or \
flink.ship: environment with flink.volume, which brings Python along"
said=$("$python" - 2>&1 << 'CHECK'
import os, sys
from importlib.util import find_spec

name = f"libpython{sys.version_info[0]}.{sys.version_info[1]}.so"
for package in ("pyflink", "cluster_serving"):
    if not find_spec(package):
        sys.exit(
            f"the image has no package {package} for {sys.executable}: use an image with cluster-serving, or "
            "flink.ship: environment with flink.volume, which brings all packages along"
        )
if sys.version_info < (3, 11, 3) and not find_spec("async_timeout"):
    sys.exit("the image lacks async_timeout, which redis-py needs on this Python: pip install async-timeout")
if os.environ.get("CLUSTER_SERVING_MODE") == "thread":
    from find_libpython import find_libpython

    if not find_libpython():
        sys.exit(
            f"the image has no {name}, which Flink loads for executionMode: thread: install it in the image "
            f"(Debian: apt-get install {name[:-3]}), or set executionMode: process"
        )
CHECK
) || end "$said"

if [ -x /docker-entrypoint.sh ]; then
    exec /docker-entrypoint.sh "$@"
fi
exec "$@"
