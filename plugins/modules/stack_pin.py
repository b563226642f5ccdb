#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of stack_pin; the action plugin of the same name does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_pin
short_description: Lock exact package versions and image digests for a fleet
version_added: 0.1.0
description:
  - Collects what the hosts of the play ask for, asks the package repositories and image registries what that means now, and writes the answer to
    a variables file in the inventory. Plans install exactly what is in there.
  - Runs once, on the controller; delegate it to localhost. The hosts are not contacted and may not even exist yet.
  - Of a host whose facts are known its distribution and architecture are used, of others C(rackready_pin_for).
  - Public keys of repositories are stored in the lock too. They must have the fingerprint that the catalog names, except on mirrors.
author:
  - rackready contributors (@rackready)
extends_documentation_fragment:
  - rackready.gpu.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
    details: The file is not touched when everything still means the same.
options:
  path:
    description: The file to write. By default C(group_vars/all/rackready_images.yml) beside the inventory.
    type: path
  ca_path:
    description: PEM file of certificate authorities to trust instead of the system's.
    type: path
  timeout:
    description: Seconds that a connection may be silent.
    type: int
    default: 20
seealso:
  - module: rackready.gpu.stack_sources
"""

EXAMPLES = r"""
- name: Lock what the fleet asks for
  rackready.gpu.stack_pin:
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
path:
  description: The lock file.
  returned: success
  type: str
lock:
  description: What is locked.
  returned: success
  type: dict
problems:
  description: One sentence for each thing that is missing or cannot be read.
  returned: failure
  type: list
  elements: str
"""
