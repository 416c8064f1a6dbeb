"""Flink's runtime context, for functions that a test opens without Flink."""


class Context:
    """The part of it that our functions use when they open; its counters count nothing."""

    def get_index_of_this_subtask(self):
        return 0

    def get_number_of_parallel_subtasks(self):
        return 1

    def get_metrics_group(self):
        return self

    def counter(self, name):
        return self

    def inc(self, count=1):
        pass

    distribution = counter
