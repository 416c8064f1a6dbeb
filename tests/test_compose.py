"""The container files, as far as they can be checked without a container engine."""

import importlib.util
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from packaging.requirements import Requirement

from cluster_serving.frontend import arguments
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.container import roles
from cluster_serving.settings.addresses import Address, redis_url

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf8"))
SERVICES = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf8")


def instructions(name):
    """Arguments of all instructions of one kind, continued lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} +(.+)$", joined, re.MULTILINE)


@pytest.mark.skipif(not importlib.util.find_spec("check_jsonschema"), reason="needs the package check-jsonschema")
def test_the_file_follows_the_schema_of_compose():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    ran = subprocess.run([*command, ROOT / "docker-compose.yml"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


def test_every_dependency_is_a_service_and_can_become_true():
    for service in SERVICES.values():
        for name, condition in service.get("depends_on", {}).items():
            other = SERVICES[name]
            if condition["condition"] == "service_completed_successfully":
                # A service that Docker starts again never completes.
                assert other.get("restart", "no") == "no"
            else:
                assert "healthcheck" in other


def test_every_volume_is_declared_and_every_mounted_folder_exists():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).exists()


def test_ports_are_published_on_this_machine_only():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_taskmanager_can_be_scaled():
    taskmanager = SERVICES["taskmanager"]
    assert not {"ports", "container_name", "hostname"} & set(taskmanager)


def test_the_model_has_the_same_path_where_it_is_checked_and_where_it_is_loaded():
    def targets(name):
        return {volume.split(":")[1] for volume in SERVICES[name]["volumes"]}

    assert targets("jobmanager") == targets("taskmanager")


def test_the_front_end_takes_its_options_and_finds_redis():
    options = arguments.read(SERVICES["http"]["command"][1:], {})
    assert urlsplit(options.redis_address).hostname in SERVICES
    assert [f"127.0.0.1:${{HTTP_PORT:-{options.port}}}:{options.port}"] == SERVICES["http"]["ports"]


def test_the_extras_of_the_images_are_those_of_the_package_and_serve_a_model():
    known = metadata.metadata("cluster-serving").get_all("Provides-Extra")
    compose = re.fullmatch(r"\$\{EXTRAS:-(.+)\}", SERVICES["taskmanager"]["build"]["args"]["EXTRAS"])[1]
    dockerfile = next(text.partition("=")[2] for text in instructions("ARG") if text.startswith("EXTRAS="))
    for extras in (compose, dockerfile):
        assert set(extras.split(",")) <= set(known)
        needed = [r for r in map(Requirement, metadata.requires("cluster-serving")) if _needs(r, extras.split(","))]
        assert {"apache-flink", "openvino"} <= {requirement.name for requirement in needed}


def _needs(requirement, extras):
    return any(requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in extras)


def test_addresses_lead_to_services(monkeypatch, tmp_path):
    environment = SERVICES["jobmanager"]["environment"]
    assert Address.of(redis_url(environment["CLUSTER_SERVING_REDIS_URL"])).host in SERVICES
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    (tmp_path / "config.yaml").write_text("modelPath: model")
    assert isinstance(config_file.read(tmp_path / "config.yaml"), Config)


def test_flink_gets_addresses_that_other_containers_reach(monkeypatch):
    properties = SERVICES["jobmanager"]["environment"]["FLINK_PROPERTIES"]
    assert properties == SERVICES["taskmanager"]["environment"]["FLINK_PROPERTIES"]
    monkeypatch.setenv("FLINK_PROPERTIES", properties)
    options = yaml.safe_load((ROOT / "flink-conf" / "config.yaml").read_text("utf8")) | roles.properties()
    assert not [key for key, value in options.items() if value == "localhost"]
    assert options["jobmanager.rpc.address"] in SERVICES


def test_commands_in_the_file_exist():
    scripts = re.findall(r"^(cluster-serving-\w+) =", (ROOT / "pyproject.toml").read_text("utf8"), re.MULTILINE)
    text = (ROOT / "docker-compose.yml").read_text("utf8") + DOCKERFILE
    assert set(re.findall(r"cluster-serving-(?:init|start|stop|restart|shutdown|cli)", text)) <= set(scripts)
    for module in re.findall(r"cluster_serving\.[\w.]+", text):
        assert importlib.util.find_spec(module)


def test_the_build_context_has_what_the_package_needs():
    packages = re.findall(
        r'^"cluster_serving\.[\w.]+" = "([^"/]+)', (ROOT / "pyproject.toml").read_text("utf8"), re.MULTILINE
    )
    copied = {
        source.rstrip("/") for line in instructions("COPY") for source in line.split()[:-1] if "--from" not in line
    }
    ignored = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text("utf8").splitlines()}
    assert all((ROOT / source).exists() for source in copied)
    assert ignored >= {*packages, *(source.partition("/")[0] for source in copied - {"."})}


def test_the_images_do_not_run_as_root():
    assert instructions("USER") == ["1000", "1000"]
    # Images of the OCI's format have none: Compose and Kubernetes check.
    assert not instructions("HEALTHCHECK")


def test_containers_write_to_no_file_of_their_image():
    ours = [service for service in SERVICES.values() if "build" in service]
    assert all(service["read_only"] and service["tmpfs"] and service["cap_drop"] == ["ALL"] for service in ours)
