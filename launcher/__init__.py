"""The commands that start and stop serving jobs, and the configuration of a job."""

from cluster_serving.launcher import lazy_module

# redis-py 5 imports it, and with it cryptography, for tokens that these processes do not use.
lazy_module.defer("jwt")
