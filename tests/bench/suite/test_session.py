"""What a session of the benchmark remembers."""

from dataclasses import replace

import pytest

from cluster_serving.bench.suite.session import BenchSession, BenchSettings

SETTINGS = BenchSettings.quick(("mosec", "litserve"))


@pytest.fixture
def measured(tmp_path):
    """Runs sessions on one file, and notes which rows they measure."""
    rows = []

    def run(*names, settings=SETTINGS):
        rows.clear()
        session = BenchSession(settings, tmp_path, tmp_path / "results.json", lambda text: None)
        for name in names:

            def row(session, name=name):
                rows.append(name)
                return {}

            session.run(name, row)
        return rows, session

    return run


def test_rows_are_measured_once(measured):
    assert measured("one", "two")[0] == ["one", "two"]
    assert measured("one", "two", "three")[0] == ["three"]


def test_other_peers_leave_the_rows_that_are_there(measured):
    measured("one")
    rows, session = measured("two", settings=replace(SETTINGS, peers=("mosec", "fastapi")))
    assert rows == ["two"]
    assert set(session.rows) == {"one", "two"}
    assert measured("one", "two", settings=replace(SETTINGS, peers=("mosec",)))[0] == []
    assert measured("one", settings=replace(SETTINGS, peers=("mosec", "fastapi")))[0] == ["one"]


def test_other_settings_begin_anew(measured):
    measured("one")
    rows, session = measured("two", settings=replace(SETTINGS, rounds=7))
    assert rows == ["two"]
    assert set(session.rows) == {"two"}


def test_a_row_that_fails_is_measured_again(measured, tmp_path):
    def fails(session):
        raise RuntimeError("no")

    session = measured()[1]
    session.run("one", fails)
    assert session.rows["one"]["failed"] == "RuntimeError: no"
    assert measured("one")[0] == ["one"]
