#!/bin/sh
# Flink's own Kubernetes mode and the Flink Kubernetes Operator start the programs of their pods through this file.
exec "$@"
