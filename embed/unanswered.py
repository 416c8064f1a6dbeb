"""The error of a job that does not answer."""


class Unanswered(Exception):
    """The job does not answer; the message says why."""
