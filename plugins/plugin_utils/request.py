# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory asks for: our variables, all checked at once, with one sentence for each mistake.

Ansible does not refuse a misspelt variable; a host would silently get the default. So every name that carries one of our prefixes must be known.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog

try:
    import jsonschema
    import jsonschema.validators
except ImportError:  # Galaxy installs the collection without it, and a sentence helps more than a traceback
    jsonschema = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

PREFIXES = (
    "gpu_stack_",
    "gpu_expected",
    "gpu_tenants",
    "mig_",
    "nvidia_driver_",
    "nvidia_fabric_",
    "nvidia_container_toolkit_",
    "docker_source",
    "docker_daemon_",
    "pytorch_image_",
    "smoke_test_",
    "host_tuning_",
    "rackready_",
)


# Sites put secrets into these, and what is refused is written into records.
SECRET = frozenset({"docker_daemon_options", "gpu_tenants", "rackready_lock", "rackready_mirror", "smoke_test_env"})
# jsonschema begins a message with the whole value that is wrong, and ends it with what is wrong.
_LOCK_WORDS = 200
_LOCK_KINDS: Mapping[type, str] = {type(None): "empty", list: "a list", str: "a text", bool: "a truth value"}


class RequestError(Exception):
    """The variables of a host cannot be used; ``sentences`` has one sentence for each mistake."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(" ".join(sentences))
        self.sentences = sentences


@cache
def _validator() -> Any:
    """The class that validates. JSON Schema takes 1.0 for an integer; nothing that counts with it does."""
    if jsonschema is None:
        raise RequestError(["The Python package jsonschema is missing on the controller: install it beside ansible-core (pip install jsonschema)."])
    base = jsonschema.Draft202012Validator
    integer = base.TYPE_CHECKER.redefine("integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool))
    return jsonschema.validators.extend(base, type_checker=integer)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Expected:
    """The GPUs that a host must have: a catalog slug and a number."""

    model: str
    count: int


@dataclass(frozen=True)
class Request:
    """A checked request; an absent override is None."""

    release: str
    expected: Expected | None
    mig_layout: tuple[Mapping[str, Any], ...]  # empty: MIG off
    tenants: tuple[Mapping[str, Any], ...]
    driver_branch: str | None
    driver_version: str | None
    driver_flavour: str | None
    kernel_change_ok: bool
    reboot_ok: bool
    drain: bool
    toolkit_version: str | None
    docker_source: str | None
    docker_daemon_options: Mapping[str, Any]
    image_ref: str | None
    image_trust: str
    smoke_tier: str
    smoke_backend: str
    smoke_ulimits: tuple[str, ...]
    smoke_env: Mapping[str, str]
    smoke_degraded: str
    smoke_burn_minutes: int
    smoke_data_paths: tuple[str, ...]
    smoke_timer: str
    mirror_packages: Mapping[str, str]
    mirror_images: Mapping[str, str]
    pin_for: tuple[str, ...]
    lock: Mapping[str, Any] | None = field(repr=False)


@cache
def _schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8"))
    return loaded


def known_names() -> tuple[str, ...]:
    """Every variable of the collection, in the order of the schema."""
    return tuple(_schema("request")["properties"])


@cache
def is_ours(name: str) -> bool:
    """Whether a variable is ours, or is meant to be: it carries one of our prefixes, is the bare prefix, or is written almost like one of our names.

    docker_* belongs to many others, so there only the prefix counts. Ansible tells GPU_EXPECTED from gpu_expected, whoever wrote it did not mean to.
    """
    name = name.lower()
    if name.startswith(PREFIXES) or f"{name}_" in PREFIXES:
        return True
    return not name.startswith("docker_") and bool(difflib.get_close_matches(name, known_names(), n=1, cutoff=0.9))


def ours(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a host that are ours."""
    return {str(name): variables[name] for name in variables if is_ours(str(name))}


def parse(variables: Mapping[str, Any], catalog: Catalog) -> Request:
    """Check the variables (other people's are ignored) and make a request of them; raises RequestError with every mistake."""
    asked = ours(variables)
    secrets = _secrets(asked.get("rackready_mirror"))
    mistakes = [*_unknown_names(asked), *secrets, *_wrong_values({name: asked[name] for name in asked if not (secrets and name == "rackready_mirror")})]
    if not mistakes:
        mistakes = [*_unknown_things(asked, catalog), *_wrong_lock(asked)]
    if mistakes:
        raise RequestError(mistakes)
    defaults = {name: entry["default"] for name, entry in _schema("request")["properties"].items() if "default" in entry}
    value = {**defaults, **asked}
    expected = value.get("gpu_expected")
    branch = value.get("nvidia_driver_branch")
    mirror = value["rackready_mirror"]
    return Request(
        release=value["gpu_stack_release"],
        expected=Expected(expected["model"], expected["count"]) if expected else None,
        mig_layout=() if value["mig_layout"] == "off" else tuple(value["mig_layout"]),
        tenants=tuple(value["gpu_tenants"]),
        driver_branch=None if branch is None else str(branch),
        driver_version=value.get("nvidia_driver_version"),
        driver_flavour=value.get("nvidia_driver_flavour"),
        kernel_change_ok=value["nvidia_driver_kernel_change_ok"],
        reboot_ok=value["nvidia_driver_reboot_ok"],
        drain=value["nvidia_driver_drain"],
        toolkit_version=value.get("nvidia_container_toolkit_version"),
        docker_source=value.get("docker_source"),
        docker_daemon_options=value["docker_daemon_options"],
        image_ref=value.get("pytorch_image_ref"),
        image_trust=value["pytorch_image_trust"],
        smoke_tier=value["smoke_test_tier"],
        smoke_backend=value["smoke_test_backend"],
        smoke_ulimits=tuple(value["smoke_test_ulimits"]),
        smoke_env={name: str(entry).lower() if isinstance(entry, bool) else str(entry) for name, entry in value["smoke_test_env"].items()},
        smoke_degraded=value["smoke_test_degraded"],
        smoke_burn_minutes=value["smoke_test_burn_minutes"],
        smoke_data_paths=tuple(value["smoke_test_data_paths"]),
        smoke_timer=value["smoke_test_timer"],
        mirror_packages=mirror.get("packages", {}),
        mirror_images=mirror.get("images", {}),
        pin_for=tuple(value["rackready_pin_for"]),
        lock=value.get("rackready_lock"),
    )


def _near(name: str, candidates: list[str]) -> str:
    name = name.lower()
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.75) or [candidate for candidate in candidates if candidate.startswith(f"{name}_")]
    return f"; did you mean {close[0]}?" if close else "."


def _unknown_names(asked: Mapping[str, Any]) -> Iterator[str]:
    names = list(known_names())
    for name in sorted(set(asked) - set(names)):
        yield f"{name} is not a variable of rackready, so it would have no effect{_near(name, names)}"


def _secrets(mirror: Any) -> list[str]:
    """Addresses with a user in them. The sentences do not repeat the address: they are written into records."""
    if not isinstance(mirror, Mapping):
        return []
    remedies = {
        "packages": "put the login into /etc/apt/auth.conf.d on the hosts (dnf needs a mirror that asks for none) and leave the address without it",
        "images": "run docker login on the hosts and leave the address without it",
    }
    return [
        f"rackready_mirror.{kind}.{name} has a user name or password in it, which would be readable on the hosts and in the records: {remedy}."
        for kind, remedy in remedies.items()
        if isinstance(mirror.get(kind), Mapping)
        for name, address in mirror[kind].items()
        if "@" in str(address)
    ]


def _wrong_values(asked: Mapping[str, Any]) -> Iterator[str]:
    schema = _schema("request")
    for name in sorted(set(asked) & set(schema["properties"]) - {"rackready_lock"}):
        for error in sorted(_validator()(schema["properties"][name]).iter_errors(asked[name]), key=str):
            yield _sentence(name, error)
            break  # one sentence a variable: the first mistake usually causes the others


def _sentence(name: str, error: ValidationError) -> str:
    """One validation error in words: where, what was found, what is allowed."""
    while error.context:  # of alternatives: the one that came closest
        error = max(error.context, key=lambda inner: (len(inner.absolute_path), inner.validator not in ("type", "const")))
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    rule: Any = error.validator_value
    schema: Any = error.schema
    where, found = f"{name}{path}", _found(name, error)
    if name in _OR_OFF and not path:
        return f'{where} is {found}, but must be "off" (in quotes, or YAML reads it as false) or {_OR_OFF[name]}.'
    number = isinstance(error.instance, int | float) and not isinstance(error.instance, bool)
    if error.validator == "type" and number and "string" in rule and "integer" not in rule:
        zeros = ", or YAML takes away zeros at its end" if isinstance(error.instance, float) else ""
        return f'{where} is the number {found}, but must be text: write it in quotes ("{error.instance}"){zeros}.'
    match error.validator:
        case "enum":
            allowed = f"must be one of {', '.join(map(str, rule))}"
        case "type":
            allowed = f"must be {_type_words(rule)}"
        case "minimum":
            allowed = f"must be {rule} or more"
        case "maximum":
            allowed = f"must be {rule} or less"
        case "pattern":
            allowed = _unlike(name, schema, str(error.instance))
        case "minItems" | "minProperties" | "minLength":
            allowed = "must not be empty" if error.validator == "minLength" else "must have at least one entry"
        case "required":
            allowed = f"must have {' and '.join(rule)}"
        case "additionalProperties":
            allowed = f"may only have {', '.join(schema.get('properties', {}))}"
        case _:
            allowed = f"is not allowed: {error.message}"
    return f"{where} is {found}, but {allowed}."


def _found(name: str, error: ValidationError) -> str:
    """What was found, as it is written in JSON; of what may hold a secret its kind, unless it is a name or an address that is spelled wrongly."""
    value = error.instance
    kind = next((words for of, words in ((dict, "a mapping"), (list, "a list"), (str, "text")) if isinstance(value, of)), None)
    return json.dumps(value, default=str) if kind is None or name not in SECRET or error.validator == "pattern" else kind


def _type_words(types: str | list[str]) -> str:
    words = {"string": "text", "integer": "a whole number", "boolean": "true or false", "object": "a mapping", "array": "a list"}
    return " or ".join(words.get(entry, entry) for entry in ([types] if isinstance(types, str) else types))


_OR_OFF = {
    "mig_layout": "a list of {gpus, instances}",
    "smoke_test_timer": 'daily, weekly, monthly, or days and a time in quotes such as "Sat 03:30" or "*-*-01 04:00"',
}
_EXAMPLES = {
    "nvidia_driver_branch": "a driver branch such as 580",
    "nvidia_driver_version": 'a driver version such as "580.178.04"',
    "nvidia_container_toolkit_version": 'a toolkit version such as "1.20.0"',
    "pytorch_image_ref": "a full image reference such as nvcr.io/nvidia/pytorch:26.07-py3",
    "smoke_test_cluster_interface": "the name of a network interface such as ens1f0",
    "smoke_test_data_paths": "an absolute path such as /mnt/data",
    "smoke_test_env": "the name of a variable such as NCCL_DEBUG",
    "smoke_test_ulimits": 'a limit such as "memlock=-1" or "nofile=65536:65536"',
    "rackready_pin_for": "a distribution and architecture such as debian-13/x86_64",
    "rackready_mirror": "an address such as https://mirror.example/cuda (packages) or registry.example:5000 (images)",
    "mig_layout": "a MIG profile such as 1g.10gb",
    "gpu_tenants": "a name such as team-a",
}


# nvidia-smi's name of a compute instance over a part of a GPU instance.
_COMPUTE_INSTANCE = re.compile(r"[1-9]c\.(?P<of>[1-9]g\.[0-9]+gb(?:[+-][a-z.]+)?)")


def _unlike(name: str, schema: Any, value: str) -> str:
    """What is wrong with a text that is not of the form that it must have."""
    instance = _COMPUTE_INSTANCE.fullmatch(value)
    if name == "mig_layout" and instance is not None:
        return f"compute instances are not supported yet: ask for the whole GPU instance {instance.group('of')}"
    return f"does not look like {_EXAMPLES.get(name, 'the pattern ' + str(schema['pattern']))}"


def _unknown_things(asked: Mapping[str, Any], catalog: Catalog) -> Iterator[str]:
    """Names that must be in the catalog."""
    release = asked.get("gpu_stack_release")
    if release is not None and release not in catalog.releases:
        yield f"gpu_stack_release is {json.dumps(release)}, but must be one of {', '.join(sorted(catalog.releases))}."
    model = (asked.get("gpu_expected") or {}).get("model")
    words = set(re.split(r"[^a-z0-9]+", (model or "").lower()))
    strange = next((entry for entry in catalog.unsupported.values() if words & set(entry["words"])), None)
    if strange is not None:
        yield f"gpu_expected.model is {json.dumps(model)}, and {strange['name']} is not supported: {strange['why']}."
    elif model is not None and model not in catalog.gpus:
        # Of so many names those that begin alike help, and only without any all of them.
        alike = [slug for slug in catalog.gpus if slug.startswith(f"{model}-")] or difflib.get_close_matches(model, list(catalog.gpus), n=5, cutoff=0.75)
        allowed = f"; did you mean {' or '.join(alike)}?" if alike else f", but must be one of {', '.join(sorted(catalog.gpus))}."
        yield f"gpu_expected.model is {json.dumps(model)}, which the catalog does not have{allowed}"
    root = (asked.get("docker_daemon_options") or {}).get("data-root", "/")
    if not (isinstance(root, str) and root.startswith("/")):
        yield f"docker_daemon_options.data-root is {json.dumps(root)}, but must be an absolute path: the engine would not start with it."
    for name in sorted((asked.get("rackready_mirror") or {}).get("packages", {})):
        if name not in catalog.repositories:
            yield f"rackready_mirror.packages.{name} is not a package repository; the repositories are {', '.join(sorted(catalog.repositories))}."
    branch, version = asked.get("nvidia_driver_branch"), asked.get("nvidia_driver_version")
    if branch is not None and version is not None and not version.startswith(f"{branch}."):
        yield f"nvidia_driver_version is {version}, which is not of nvidia_driver_branch {branch}: set one of the two."


def _wrong_lock(asked: Mapping[str, Any]) -> Iterator[str]:
    if "rackready_lock" not in asked:
        return
    lock = asked["rackready_lock"]
    error = next(iter(_validator()(_schema("lock")).iter_errors(lock)), None)
    where, what = "its top level", ""
    if not isinstance(lock, Mapping):
        what = f"it is {_LOCK_KINDS.get(type(lock), 'a number')} and not the mapping that pin.yml writes"
    elif error is not None:
        where, what = ".".join(str(step) for step in error.absolute_path) or where, error.message[-_LOCK_WORDS:]
    else:
        # The package manager would find a key that was cut only after the first changes.
        for name, repository in lock["repositories"].items():
            if hashlib.sha256(repository["key"].encode("utf-8")).hexdigest() != repository["key_sha256"]:
                where, what = f"repositories.{name}.key", "it is not the key whose SHA-256 is written beside it"
    if what:
        yield f"rackready_lock is damaged at {where} ({what}): write it again with playbooks/pin.yml."
