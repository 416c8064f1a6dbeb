"""A failure of the user's own code, which its operator has to see."""

from cluster_serving.protocol.errors import InferenceFailed


class CodeFailed(InferenceFailed):
    """A failure of code around a model (`handlers.failure`); its request is kept as a dead letter, with the traceback.

    Attributes:
        traceback: Stack of the exception, for the operator.
    """

    traceback: str = ""

    def report(self) -> None:
        """Write the traceback to the log."""
