"""What queues can do beside queuing inputs and reading their result: a further ability is named here."""

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
from cluster_serving.client.sending.convert import inputs_of
from cluster_serving.client.sending.outlet import Outlet
from cluster_serving.client.sending.texts import TextInputs, converted

__all__ = [
    "PIECE_TIMEOUT",
    "TIMEOUT",
    "AsyncPieces",
    "AsyncSubscription",
    "Batch",
    "Dispatcher",
    "Outlet",
    "PieceIteration",
    "PieceOrRestart",
    "Pieces",
    "Restarted",
    "TextInputs",
    "check",
    "converted",
    "inputs_of",
    "pieces_of",
    "results_in_thread",
    "wait_for",
]
