# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""What the lab calls its things. Everything it makes outside ``.lab/`` is a Docker object with LABEL."""

from __future__ import annotations

LABEL = "rackready-lab"
# Values of LABEL. A container inherits the labels of its image, so one that somebody starts from a lab image says "image".
CONTAINERS = ("services", "host", "tool")
IMAGE = "image"
CHECKOUT_LABEL = "rackready-lab.checkout"
INPUTS_LABEL = "rackready-lab.inputs"

NETWORK = "rackready-lab"
SUBNET = "172.30.86.0/24"

SERVICES = "rackready-lab-services"
SERVICES_ADDRESS = "172.30.86.2"
SERVICES_HOSTNAME = "services.rackready.lab"
REGISTRY_PORT = 5000
SERVICES_IMAGE = "rackready-lab/services:debian-13"

TORCH_REPOSITORY = "rackready-lab/pytorch"
TORCH_VERSION = "2.13.0"
TORCH_TAG = f"{TORCH_VERSION}-cpu"


def root_image(distribution: str) -> str:
    """The bare root file system of a distribution, as debootstrap would leave it plus the lab's packages."""
    return f"rackready-lab/root:{distribution}"


def host_image(distribution: str) -> str:
    """The root with what makes it a host of this lab: its certificate authority, package sources and simulated GPUs."""
    return f"rackready-lab/host:{distribution}"
