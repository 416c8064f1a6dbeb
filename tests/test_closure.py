"""What the kernel imports, followed to the end, may not grow."""

from tests.support.programs.closure import FOLDERS, ROOT, Size, closure, settings, size


def test_the_kernel_imports_no_more_than_before():
    limits, lists = settings(), frozenset(settings()["lists"])
    assert len(lists) <= len(FOLDERS) == len({name.split("/")[0] for name in lists} | set(FOLDERS))
    assert all((ROOT / name).is_file() for name in lists)
    for folders, limit in ((FOLDERS, Size(*limits["all"])), (FOLDERS[:4], Size(*limits["first_four"]))):
        found = size(closure(folders, lists=lists))
        assert found.files <= limit.files and found.lines <= limit.lines, f"{found} of {folders}; at most {limit}"


FILES = {
    "job/main.py": """
from typing import TYPE_CHECKING
from cluster_serving.job.a.b import name
if TYPE_CHECKING:
    from cluster_serving.job.a import types
""",
    "job/a/__init__.py": "",
    "job/a/b.py": "def f():\n    from cluster_serving.job.a import hung, name",
    "job/a/hung.py": "import cluster_serving.job.a.stage",
    "job/a/stage.py": "import numpy",
    "job/a/types.py": "",
    "client/other.py": "import cluster_serving.job.a.types",
}


def test_imports_are_followed_to_the_end_but_those_for_types_and_of_lists(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def found(*lists):
        paths = closure(("job",), tmp_path, frozenset(lists))
        assert size(paths).files == len(paths)
        return {path.relative_to(tmp_path).as_posix() for path in paths}

    followed = {"job/main.py", "job/a/__init__.py", "job/a/b.py", "job/a/hung.py", "job/a/stage.py"}
    assert found() == followed
    assert found("job/a/hung.py") == followed - {"job/a/stage.py"}
