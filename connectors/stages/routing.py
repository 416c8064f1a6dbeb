"""Routing: requests go to the generation of their version, and a canary gets its share."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.stage import Stage
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.generations import CANARY, DIVIDED, Generations, is_in_trial
from cluster_serving.protocol.versions import choose, not_served

# During a canary, requests also come by way of slots of the other generation, which wake no slot here.
_CANARY_BLOCK_MS = 5
_HALF = 50
# A canary that does not take its requests, dead say, does not get them.
_LEFT_MS = 5000
_STAND_IN_S = 30.0


class Routing(Stage):
    """Takes what other slots have left, and leaves to other generations what is theirs."""

    def __init__(self, slot: Slot) -> None:
        super().__init__(slot)
        self._looks_for_left = False
        self._next_look = self._stands_in_until = 0.0

    def take(self, room: int) -> Sequence[Entry]:
        """Take requests that other slots have left: slots of another generation, hung ones, and such as are gone."""
        slot, keys = self.slot, self.slot.keys
        own, generation = slot.options.generation, slot.generation
        if generation.has_left():
            self._looks_for_left = True
            if slot.reader.claim_orphans():
                return ()
        if not (self._looks_for_left or generation.canary):
            return ()
        entries = slot.reader.claim(keys.handed_to(own), room)
        for other in generation.now.reading:
            if not entries and other.number != own:
                late = slot.reader.claim(keys.handed_to(other.number), room, _LEFT_MS)
                entries = [entry for entry in late if not entry.version]
                if named := [entry for entry in late if entry.version]:
                    slot.reader.hand_over(named, keys.handed_to(other.number))
        self._looks_for_left = len(entries) == room
        return entries

    def may_read(self) -> bool:
        """Return False to the generation of a canary's job with the smaller share: the other reads for both."""
        slot, canary = self.slot, self.slot.generation.canary
        if canary is None or (slot.options.generation == canary.number) == (canary.share > _HALF):
            return True
        return self._stands_in()

    def wait_ms(self, block_ms: int | None) -> int | None:
        """Shorten the wait during a canary."""
        return _CANARY_BLOCK_MS if block_ms and self.slot.generation.canary else block_ms

    def admit(self, entries: list[Entry]) -> list[Entry]:
        """Return the requests that are for this generation; the others are handed over to theirs, or refused."""
        slot, now = self.slot, self.slot.generation.now
        if not entries or not (now.trial or any(entry.version for entry in entries)):
            return entries
        mine: list[Entry] = []
        others: defaultdict[int, list[Entry]] = defaultdict(list)
        refused: list[tuple[Entry, ServingError]] = []
        for entry, number in zip(entries, self._destinations(entries, now), strict=True):
            if number == slot.options.generation:
                mine.append(entry)
            elif number is None:
                served = [generation.version for generation in slot.generation.reading]
                refused.append((entry, not_served(slot.options.job, entry.version, served)))
            else:
                others[number].append(entry)
        slot.refuse(refused)
        for number, left in others.items():
            slot.reader.hand_over(left, slot.keys.handed_to(number))
        return mine

    def readmit(self, entry: Entry) -> Entry | None:
        """Look at the version that a request names, which may have ended meanwhile."""
        return entry if not entry.version or self.admit([entry]) else None

    def _stands_in(self) -> bool:
        """Return True while this generation also reads: the one that should read leaves requests there, dead say."""
        now = time.monotonic()
        if now >= self._next_look:
            waits = self.slot.reader.longest_wait_ms() >= _LEFT_MS
            self._stands_in_until = now + _STAND_IN_S if waits else self._stands_in_until
            self._next_look = now + 1
        return now < self._stands_in_until

    def _destinations(self, entries: Sequence[Entry], now: Generations) -> list[int | None]:
        """Return the number of the generation that answers each request; None if its version is not served."""
        slot, canary, serving = self.slot, now.of_role(CANARY), now.serving
        reading = slot.generation.reading
        numbers = {generation.version: generation.number for generation in reading}
        served = {generation.version: generation.numbered for generation in reading}
        # Both may have the same version: a change of the configuration alone.
        divided = canary and serving and canary.version == serving.version
        count = int(slot.client.hincrby(slot.generation.key, DIVIDED, len(entries))) if canary else 0
        destinations: list[int | None] = []
        for at, entry in enumerate(entries):
            version = choose(entry.version, served) if entry.version else ""
            if version is None:
                destinations.append(None)
            elif version and not divided:
                destinations.append(numbers[version])
            elif canary and serving:
                destinations.append(canary.number if is_in_trial(count - at, canary.share) else serving.number)
            else:
                destinations.append(slot.options.generation)
        return destinations
