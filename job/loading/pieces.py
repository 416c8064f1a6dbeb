"""Answers in pieces, which a slot writes as its model makes them; a shadow writes none."""

from cluster_serving.connectors.slot.pieces import PieceWriter
from cluster_serving.job.predicting import Predicting
from cluster_serving.job.slot_part import SlotPart


class Pieces(SlotPart):
    """The writer of the pieces."""

    def after(self, predictor: Predicting) -> None:
        """Send the pieces to Redis."""
        options = self.slot.options.redis
        if not options.shadow:
            predictor.send_pieces(PieceWriter(self.slot.client, options))
