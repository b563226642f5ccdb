#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read at which address other hosts reach this one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_cluster_network
short_description: Read at which address other hosts reach this one
version_added: 0.1.0
description:
  - Finds the network interface and the address at which the other hosts of a test reach this one, and its adapters for RDMA.
  - A host without such an address is no failure of this module; RV(ansible_facts) says what is wrong, and M(rackready.gpu.gpu_cluster_plan) refuses it by name.
author:
  - rackready contributors (@rackready)
extends_documentation_fragment:
  - rackready.gpu.attributes
  - rackready.gpu.attributes.read_only
options:
  interface:
    description: Name of the interface; without it that of the route to O(toward).
    type: str
  toward:
    description: Name or address of the first host, as Ansible reaches it. IPv4 alone.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Read at which address the others reach this host
  rackready.gpu.gpu_cluster_network:
    toward: 10.0.0.1
"""

RETURN = r"""
ansible_facts:
  description: The findings, as the fact C(gpu_cluster_network).
  returned: always
  type: dict
  contains:
    gpu_cluster_network:
      description:
        - C(interface), C(address), C(mtu) and C(speed_mbit) of the interface (null where unknown), C(infiniband) (ports of adapters that are active, InfiniBand
          and RoCE alike), C(devices) (device nodes for RDMA), C(problem) (why others cannot reach it there, or null).
        - C(token) is new each time; that of the first host marks the messages and results of one test.
      type: dict
      returned: always
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackready.gpu.plugins.module_utils.cluster_network import look, real_network

ARGUMENTS: dict[str, dict[str, Any]] = {"interface": {"type": "str"}, "toward": {"type": "str", "required": True}}


def main() -> None:
    """Module entry point."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    found = look(module.params["interface"], module.params["toward"], real_network())
    module.exit_json(changed=False, ansible_facts={"gpu_cluster_network": {**found, "token": os.urandom(8).hex()}})


if __name__ == "__main__":
    main()
