"""A client that asks all the time, while something fails."""

import threading

import numpy as np

from tests.support import model_zoo
from tests.support.waiting import wait_until


class Asking(threading.Thread):
    """A client that asks for one digit after the other, until it is told to stop."""

    def __init__(self, queue):
        super().__init__()
        self._queue = queue
        self._stopped = threading.Event()
        self.answers = []
        self.error = None

    def run(self):
        digits = model_zoo.digits_data()[0]
        try:
            with self._queue() as queue:
                while not self._stopped.is_set():
                    digit = digits[len(self.answers) % len(digits)]
                    self.answers.append((digit, queue.predict({"x": digit}, timeout=200)))
        except Exception as error:
            self.error = error

    def goes_on(self):
        before = len(self.answers)
        wait_until(lambda: self.error or len(self.answers) > before + 20, 150)
        assert self.error is None, self.error

    def stop(self):
        self._stopped.set()
        self.join(210)
        assert self.error is None, self.error
        digits, answers = zip(*self.answers, strict=True)
        np.testing.assert_allclose(np.stack(answers), model_zoo.digits_mlp(np.stack(digits)), atol=0.02)
