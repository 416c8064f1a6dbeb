"""Addresses of Redis whose login is not percent-encoded, at every door, and what messages show of addresses."""

import traceback

import pytest

from cluster_serving.client import AsyncInputQueue, InputQueue
from cluster_serving.frontend import arguments
from cluster_serving.launcher.config import file as config_file
from cluster_serving.settings.addresses import redacted, redis_url

DOORS = {
    "config": lambda url, folder: config_file.read(written(url, folder)),
    "front end": lambda url, folder: arguments.read([f"--redisUrl={url}", "--models=some"], {}),
    "client": lambda url, folder: InputQueue(url=url, name="{some}"),
    "asyncio client": lambda url, folder: AsyncInputQueue(url=url, name="{some}"),
}


def written(url, folder):
    path = folder / "config.yaml"
    path.write_text(f"modelPath: m\njobName: '{{some}}'\nredisUrl: '{url}'\n")
    return path


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("password", ["4711/0", "4711#z", "4711?z", "4711?db=3&z", "47[11", "4711/z@y", "a://4711"])
@pytest.mark.parametrize("form", ["redis://me:{}@host:1", "rediss://:{}@host", "redis+sentinel://:{}@host:1/service"])
def test_a_login_that_is_not_encoded_is_told_and_not_shown(tmp_path, door, password, form):
    with pytest.raises(Exception, match="percent-encoded, as %2F for /") as caught:
        DOORS[door](form.format(password), tmp_path)
    assert "4711" not in str(caught.value)
    # Nothing of it is in a log of the error, either.
    shown = "".join(traceback.format_exception_only(caught.type, caught.value))
    assert "4711" not in shown and "\n" not in str(caught.value)


@pytest.mark.parametrize("login", ["me:p%2Fw@", ":p@w@", ":p:w@", ""])
def test_a_login_that_can_be_read_is_taken(login):
    assert redis_url(f"redis://{login}host:1/2") == f"redis://{login}host:1/2"
    certificate = f"rediss://{login}host:1/2?ssl_ca_certs=/a@b"
    assert redis_url(certificate) == certificate


@pytest.mark.parametrize("url", ["redis://me:secret@host:1", "redis://:secret://x@host:1", ":secret@host:1"])
def test_a_message_shows_an_address_without_its_login(url):
    assert redacted(url).endswith("***@host:1") and "secret" not in redacted(url)
