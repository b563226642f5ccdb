# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""``up``: from nothing, or from whatever a killed run left, to a running lab."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from . import distribution as distributions
from . import fleet, host_image, hosts, network, repository, requirements, services, ssh, tls, torch_image
from .engine import Engine, EngineKind
from .errors import LabError
from .names import CHECKOUT_LABEL, SERVICES_IMAGE, TORCH_REPOSITORY, TORCH_TAG, root_image
from .names import host_image as host_image_name
from .paths import Layout
from .steps import Steps, digest_of

REPOSITORY_CODE = ("repository.py", "dnf_repository.py", "debs.py", "docker_packages.py", "rpm_packages.py", "index_repository.sh", "index_rpms.sh")


def image_id(engine: Engine, name: str) -> str:
    found = engine.inspect("image", name)
    if found is None:
        raise LabError(f"the image {name} is gone; run ./dev lab up")
    return str(found["Id"])


def up(layout: Layout, engine: Engine, name: str, say: Callable[[str], None]) -> None:
    requirements.check()
    take_over(layout, engine, say)
    known = distributions.load(layout.code / "distributions.yml")
    wanted = fleet.load(layout.fleets, name, known)
    used = [known[key] for key in sorted({host.distribution for host in wanted})]
    steps = Steps(layout.stamps, say)
    shutil.rmtree(layout.work, ignore_errors=True)
    layout.work.mkdir(parents=True)

    network.ensure(engine)
    inputs = services.ROOT.inputs()
    steps.run(
        "image-services",
        "image of the services",
        inputs,
        made=lambda: services.image_present(engine, SERVICES_IMAGE, inputs),
        make=lambda: services.make_image(layout, engine),
    )
    steps.run("tls", "certificate authority", digest_of(tls.SCRIPT), made=lambda: tls.present(layout), make=lambda: tls.make(layout, engine))
    steps.run(
        "signing",
        "key of the package repositories",
        digest_of(repository.KEY_SCRIPT),
        made=lambda: repository.signing_key_present(layout),
        make=lambda: repository.make_signing_key(layout, engine),
    )
    ssh.make(layout, wanted)

    inputs = services.container_inputs(layout, image_id(engine, SERVICES_IMAGE))
    steps.run(
        "services",
        "services: package repositories and registry",
        inputs,
        made=lambda: services.running(engine, inputs),
        make=lambda: services.start(layout, engine, inputs),
    )
    for key in sorted({key for one in used for key in one.needs}):
        up_root(layout, engine, steps, known[key])
    for one in used:
        up_image(layout, engine, steps, one)
    inputs = repository_inputs(layout, used)
    steps.run(
        "repositories",
        "signed package repositories",
        inputs,
        made=(layout.served / "repo").is_dir,
        make=lambda: repository.make(layout, engine, used),
    )
    steps.run(
        "pytorch",
        f"image {TORCH_REPOSITORY}:{TORCH_TAG} in the registry",
        digest_of(layout.code / "torch_image.py", layout.code / "oci.py", torch_image.ROOT.inputs()),
        made=lambda: torch_image.present(layout),
        make=lambda: torch_image.make(layout),
    )
    for other in surplus(engine, wanted):
        hosts.remove(engine, other)
        say(f"  removed          {other}: not in fleet {name}")
    kind = engine.kind(SERVICES_IMAGE)
    for host in wanted:
        up_host(layout, engine, steps, host, kind)
    # On a busy machine one that answered may have stopped to while the others were made.
    for host in wanted:
        hosts.wait_for_login(layout, host)
    layout.fleet_file.write_text(name)


def up_root(layout: Layout, engine: Engine, steps: Steps, one: distributions.Distribution) -> None:
    steps.run(
        f"root-{one.key}",
        f"root file system and package mirror of {one.key}",
        host_image.root_inputs(one),
        made=lambda: host_image.root_present(layout, engine, one),
        make=lambda: host_image.make_root(layout, engine, one),
    )


def up_image(layout: Layout, engine: Engine, steps: Steps, one: distributions.Distribution) -> None:
    inputs = host_image.inputs(layout, one, image_id(engine, root_image(one.root)))
    steps.run(
        f"image-{one.key}",
        f"image of {one.key} hosts",
        inputs,
        made=lambda: host_image.present(engine, one, inputs),
        make=lambda: host_image.make(layout, engine, one, inputs),
    )


def repository_inputs(layout: Layout, used: list[distributions.Distribution]) -> str:
    code = [layout.code / name for name in REPOSITORY_CODE]
    parts: list[object] = [layout.gpu_host, *code, layout.signing / "public.asc"]
    for one in used:
        mirrored = [path.name for key in sorted(one.needs) for path in sorted((layout.mirror / key).iterdir())]
        parts += [dataclasses.asdict(one), *mirrored]
    return digest_of(os.uname().release, *parts)


def up_host(layout: Layout, engine: Engine, steps: Steps, host: fleet.Host, kind: EngineKind) -> None:
    inputs = hosts.inputs(layout, host, image_id(engine, host_image_name(host.distribution)), kind)

    def made() -> bool:
        return hosts.state(engine, host) == ("running", inputs) and hosts.answers(layout, host)

    def make() -> None:
        what, of = hosts.state(engine, host)
        if what in ("exited", "created") and of == inputs:
            engine.run("start", host.name)
        else:
            hosts.create(layout, engine, host, inputs, kind)
        hosts.wait(layout, engine, host)

    steps.run(f"host-{host.name}", f"host {host.name} at {host.address}, {host.distribution}, {host.board}", inputs, made, make)


def reset(layout: Layout, engine: Engine, name: str, say: Callable[[str], None]) -> None:
    """One host bare again: a new container from the image that is there."""
    take_over(layout, engine, say)
    known = distributions.load(layout.code / "distributions.yml")
    host = find(fleet.load(layout.fleets, fleet_name(layout), known), name)
    kind = engine.kind(SERVICES_IMAGE)
    inputs = hosts.inputs(layout, host, image_id(engine, host_image_name(host.distribution)), kind)

    def make() -> None:
        hosts.create(layout, engine, host, inputs, kind)
        hosts.wait(layout, engine, host)

    Steps(layout.stamps, say).run(f"host-{host.name}", f"host {host.name}, bare", inputs, made=lambda: False, make=make)


def fleet_name(layout: Layout) -> str:
    if not layout.fleet_file.is_file():
        raise LabError("the lab is not up; run ./dev lab up")
    return layout.fleet_file.read_text().strip()


def find(wanted: list[fleet.Host], name: str) -> fleet.Host:
    for host in wanted:
        if host.name == name:
            return host
    raise LabError(f"the fleet has no host {name}; it has {', '.join(host.name for host in wanted)}")


def surplus(engine: Engine, wanted: list[fleet.Host]) -> list[str]:
    """Host containers of the lab that the fleet does not have."""
    return [name for name in engine.containers("host") if name not in {host.name for host in wanted}]


def take_over(layout: Layout, engine: Engine, say: Callable[[str], None]) -> None:
    """There is one lab a machine: its names and addresses are fixed. That of another checkout is left alone, unless nobody can take it down any more."""
    found = owners(engine, "services", "host")
    for other in found.values():
        if other not in (None, str(layout.checkout)) and (Path(str(other)) / "dev").is_file():
            theirs = [each for each, owner in found.items() if owner == other]
            raise LabError(
                f"the lab of the checkout {other} is there ({', '.join(theirs)}), and a machine can have one only: take it down first ({other}/dev lab down)"
            )
    for name, other in found.items():
        if other != str(layout.checkout):
            hosts.remove(engine, name)
            say(f"  removed          {name}: it belonged to the lab of {other or 'a checkout without a name'}, which is gone")


def owners(engine: Engine, *roles: str) -> dict[str, str | None]:
    """The lab's containers of these roles (all, if none is named) with the checkout that each was started from; None for the tools of a moment."""
    return {name: engine.label("container", name, CHECKOUT_LABEL) for name in engine.containers(*roles)}
