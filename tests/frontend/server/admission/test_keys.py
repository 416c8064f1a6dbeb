"""API keys: their file, and the requests that need one."""

import json
import subprocess
import sys

import httpx
import pytest

from cluster_serving.frontend.errors import StartError, Unauthenticated
from cluster_serving.frontend.server.admission.keys import Keys, new_key

BODY = json.dumps({"instances": [{"x": [1, 2]}]})


@pytest.mark.usefixtures("echo", "vectors")
@pytest.mark.parametrize("header", ["Authorization: Bearer {}", "authorization: bearer {}", "X-API-Key: {}"])
def test_a_key_is_needed_where_keys_are_configured(serve, keys, header):
    file, key = keys
    url = f"{serve(f'--apiKeysFile={file}').url}/predict"
    name, _, value = header.format(key).partition(": ")
    assert httpx.post(url, content=BODY, headers={name: value}, timeout=30).status_code == 200
    for wrong in ({}, {name: value + "x"}, {name: "\xff"}):
        response = httpx.post(url, content=BODY, headers=[(k.encode(), v.encode("latin1")) for k, v in wrong.items()])
        assert (response.status_code, response.json()["code"]) == (401, "UNAUTHENTICATED")
        assert response.headers["www-authenticate"] == "Bearer"
        assert key not in response.text


def test_probes_need_no_key_and_everything_else_does(serve, keys):
    url = serve(f"--apiKeysFile={keys[0]}").url
    for path in ("/health/live", "/health"):
        assert httpx.get(url + path).status_code in (200, 503)
    for path in ("/models", "/metrics", "/model-secure", "/predict", "/nowhere"):
        assert httpx.get(f"{url}{path}").status_code == 401


def test_a_key_is_made_by_the_command_and_only_its_hash_is_kept(tmp_path):
    command = [sys.executable, "-m", "cluster_serving.frontend.main", "hash-key"]
    done = subprocess.run([*command, "bob"], capture_output=True, text=True, check=True)
    key = done.stderr.split()[-1]
    file = tmp_path / "keys"
    file.write_text(done.stdout)
    assert key not in done.stdout
    assert Keys(file).owner(key) == "bob"
    assert subprocess.run([*command, "a:b"], capture_output=True, check=False).returncode == 1
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_a_line_that_is_no_hash_is_named_and_not_repeated(tmp_path):
    file = tmp_path / "keys"
    file.write_text("alice:my-secret-key\n")
    with pytest.raises(StartError, match="line 1") as caught:
        Keys(file)
    assert "my-secret-key" not in str(caught.value)
    with pytest.raises(StartError, match="cannot be read"):
        Keys(tmp_path / "none")


def test_a_file_that_is_broken_while_in_use_leaves_the_keys_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster_serving.frontend.server.admission.keys._RECHECK", -1)
    file, (key, line), (other, added) = tmp_path / "keys", new_key("alice"), new_key("bob")
    file.write_text(line)
    keys = Keys(file)
    file.write_text(f"{line}\n{added[:20]}")
    assert keys.owner(key) == "alice"
    file.unlink()
    assert keys.owner(key) == "alice"
    file.write_text(added)
    assert keys.owner(other) == "bob"
    with pytest.raises(Unauthenticated):
        keys.owner(key)
