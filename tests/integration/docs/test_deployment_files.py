"""What the files for deployment and the pages about it name is there: extras, settings, files."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from aforesaid.server.app import ENDPOINTS
from aforesaid.server.openapi import openapi_document
from aforesaid.settings import ENVIRONMENT
from aforesaid.stores.urls import backend_for

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FILES = sorted(file for file in (ROOT / "deploy").rglob("*") if file.is_file() and file.suffix != ".json")
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", [*FILES, *PAGES], ids=_name)
def test_extras_that_are_named_can_be_installed(file: Path) -> None:
    text = file.read_text("utf-8")
    named = re.findall(r"(?:aforesaid|'\.)\[([a-z,]+)\]", text)
    assert {extra for group in named for extra in group.split(",")} <= EXTRAS


@pytest.mark.parametrize("file", [*FILES, *PAGES], ids=_name)
def test_settings_that_are_named_are_read(file: Path) -> None:
    named = set(re.findall(r"\bAFORESAID_[A-Z_]+[A-Z]\b", file.read_text("utf-8")))
    assert named <= set(ENVIRONMENT.values())


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_files_for_deployment_that_are_named_are_there(page: Path) -> None:
    named = re.findall(r"\bdeploy/[a-z]+/[A-Za-z.]+\b", page.read_text("utf-8"))
    assert all((ROOT / file).is_file() for file in named)


# Compose files and manifests. Without Docker and Kubernetes they are read, not run.

COMPOSE = sorted((ROOT / "deploy" / "compose").glob("*.yml"))
DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8")
MANIFESTS = {each["kind"]: each for each in yaml.safe_load_all(
    (ROOT / "deploy" / "kubernetes" / "aforesaid.yml").read_text("utf-8")
)}  # fmt: skip


def _services(file: Path) -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text("utf-8"))["services"]
    return services


@pytest.mark.parametrize("file", COMPOSE, ids=_name)
def test_a_compose_file_names_only_what_it_has(file: Path) -> None:
    whole, services = yaml.safe_load(file.read_text("utf-8")), _services(file)
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        for source in (volume.partition(":")[0] for volume in service.get("volumes", ())):
            assert source in whole["volumes"] or (file.parent / source).is_file(), source
        assert {each["source"] for each in service.get("configs", ())} <= whole.get("configs", {}).keys()
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "open to this machine only"


@pytest.mark.parametrize("file", COMPOSE, ids=_name)
def test_every_server_of_a_compose_file_has_a_store_and_a_volume_for_its_spool(file: Path) -> None:
    servers = [each for each in _services(file).values() if each.get("image") == "aforesaid"]
    assert servers
    for each in servers:
        environ = each.get("environment", {})
        url = environ.get("AFORESAID_URL", "sqlite:////data/memory.db")
        backend_for(url.replace("${POSTGRES_PASSWORD:?}", "secret"))
        assert environ.get("AFORESAID_SPOOL_FOLDER", "/data/spool").startswith("/data/")
        assert [volume.endswith(":/data") for volume in each["volumes"]] == [True]
        assert each["stop_grace_period"] == "30s"


def test_probes_of_the_manifest_are_routes_of_the_server() -> None:
    (container,) = MANIFESTS["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    paths = {name: probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")}
    assert paths == {"startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready"}
    assert set(paths.values()) <= openapi_document(ENDPOINTS)["paths"].keys()


def test_the_manifest_fits_the_image_and_its_own_parts() -> None:
    pods = MANIFESTS["StatefulSet"]["spec"]["template"]
    (container,) = pods["spec"]["containers"]
    environ = {each["name"]: each.get("value") for each in container["env"]}
    for name in ("Service", "PodDisruptionBudget"):
        selector = MANIFESTS[name]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == pods["metadata"]["labels"]
    assert f"--uid {pods['spec']['securityContext']['runAsUser']} " in DOCKERFILE
    assert f"EXPOSE {container['ports'][0]['containerPort']}" in DOCKERFILE
    stopping = sum(int(environ[f"AFORESAID_{name}_SECONDS"]) for name in ("LAME_DUCK", "DRAIN"))
    assert stopping < pods["spec"]["terminationGracePeriodSeconds"]
    assert environ["AFORESAID_REQUIRE_KEYS"] == "true"
