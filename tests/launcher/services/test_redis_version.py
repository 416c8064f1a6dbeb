import pytest

from cluster_serving.launcher.services.redis_version import RedisVersion


@pytest.mark.parametrize(
    ("number", "fixed"),
    [
        ("6.2.14", "6.2.23"),
        ("6.2.23", ""),
        # No release of 7.0 has the fixes.
        ("7.0.15", "7.2.15"),
        ("8.0.6", "8.2.8"),
        ("8.8.1", ""),
        ("8.8.0-rc1", "8.8.1"),
        ("9.0.0", ""),
        ("255.255.255", ""),
    ],
)
def test_a_redis_is_compared_with_the_fixed_release_of_its_branch(number, fixed):
    version = RedisVersion.read({"redis_version": number, "gcc_version": "12.2.0"})
    assert (str(version), version.fixed) == (f"Redis {number}", fixed)


@pytest.mark.parametrize(("number", "fixed"), [("8.1.1", "8.1.9"), ("9.1.2", ""), ("9.0.4", "9.0.5"), ("9.2.0", "")])
def test_valkey_is_judged_by_its_own_version(number, fixed):
    version = RedisVersion.read({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": number})
    assert (str(version), version.fixed) == (f"Valkey {number}", fixed)


def test_other_servers_are_not_judged_by_the_version_of_redis_that_they_report():
    version = RedisVersion.read({"redis_version": "7.4.0", "dragonfly_version": "df-v1.21.2"})
    assert (str(version), version.fixed) == ("Dragonfly df-v1.21.2", "")
