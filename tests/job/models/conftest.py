from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.payloads.engines import ENGINES


@pytest.fixture(scope="session")
def digit_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Engine → folder of the digits model."""
    root = tmp_path_factory.mktemp("digits")
    for name, engine in ENGINES.items():
        engine.save_digits(root / name)
    return {name: root / name for name in ENGINES}


@pytest.fixture(params=ENGINES)
def digits_folder(request: pytest.FixtureRequest, digit_folders: dict[str, Path]) -> Path:
    """Folder of the digits model, once per engine."""
    return digit_folders[request.param]
