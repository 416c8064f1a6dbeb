"""What queues can do beside queuing a request and reading its result: a further ability is named here."""

from cluster_serving.client.answers.many import TIMEOUT, Batch, check, results_in_thread
from cluster_serving.client.answers.pieces import (
    PIECE_TIMEOUT,
    AsyncPieces,
    PieceIteration,
    PieceOrRestart,
    Pieces,
    Restarted,
    pieces_of,
)
from cluster_serving.client.dispatching.dispatcher import Dispatcher
from cluster_serving.client.dispatching.subscription import AsyncSubscription, wait_for

__all__ = [
    "PIECE_TIMEOUT",
    "TIMEOUT",
    "AsyncPieces",
    "AsyncSubscription",
    "Batch",
    "Dispatcher",
    "PieceIteration",
    "PieceOrRestart",
    "Pieces",
    "Restarted",
    "check",
    "pieces_of",
    "results_in_thread",
    "wait_for",
]
