"""The processes that run on this machine for jobs: Redis, Flink, the front end, and their supervisors."""
