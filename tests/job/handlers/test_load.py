"""Modules of handlers: each load has its own."""

import sys
import threading

from cluster_serving.job.handlers.load import Code
from tests.support.fixtures.handled import write


def test_two_versions_of_a_handler_run_in_one_interpreter_each_with_its_own_modules(tmp_path):
    before = set(sys.modules)
    codes = []
    for version in (1, 2):
        folder = tmp_path / "same"
        folder.mkdir(exist_ok=True)
        (folder / "parts").mkdir(exist_ok=True)
        write(folder, f"VERSION = {version}", "helpers.py")
        write(folder, "from helpers import VERSION\nfrom . import more\n", "parts/__init__.py")
        write(folder, f"import json\nname = 'more {version}'", "parts/more.py")
        # A module of this name is also installed.
        write(folder, f"ours = {version}", "yaml.py")
        write(
            folder,
            """
            from dataclasses import dataclass
            import helpers, yaml, parts.more, json
            from parts import more

            @dataclass
            class Handler:
                def predict(self, batch=None):
                    from helpers import VERSION as late
                    return [helpers.VERSION, late, parts.VERSION, more.name, yaml.ours]
            """,
        )
        codes.append(Code(folder))
    assert [code.kind().predict()[0] for code in codes] == [1, 2]
    two = codes[1].kind()
    codes[0].close()
    # What is imported only now still is that of its own load, as long as it is open.
    assert two.predict() == [2, 2, 2, "more 2", 2]
    assert "helpers" not in sys.modules
    assert "parts" not in sys.modules
    assert not list((tmp_path / "same").rglob("__pycache__"))
    codes[1].close()
    assert not [name for name in set(sys.modules) - before if name.startswith("cluster_serving_handler_")]


def test_slots_load_at_the_same_time(tmp_path):
    write(tmp_path, "import time\ntime.sleep(0.01)\nseen = []", "helpers.py")
    write(
        tmp_path, "import helpers\nclass Handler:\n  def predict(self, n): helpers.seen.append(n); return helpers.seen"
    )
    found = []

    def run(number):
        found.append(Code(tmp_path).kind().predict(number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [[number] for number in range(8)]
