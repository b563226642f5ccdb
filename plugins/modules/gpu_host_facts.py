#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read everything about a GPU host that a plan needs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_facts
short_description: Read everything about a GPU host that a plan needs
version_added: 0.1.0
description:
  - Reads the whole host in one round trip and changes nothing.
  - Needs no driver. GPUs and NVSwitches are read from the PCI bus, so a bare host is described as completely as a finished one.
  - Never waits for a wedged C(nvidia-smi) longer than O(smi_timeout), and reports that it hangs as a fact.
  - Asks neither C(nvidia-smi) while the kernel module is out nor a container engine that is stopped, since asking would start them.
author:
  - rackready contributors (@rackready)
extends_documentation_fragment:
  - rackready.gpu.attributes
  - rackready.gpu.attributes.read_only
options:
  smi_timeout:
    description:
      - Seconds after which C(nvidia-smi) is given up.
      - Without persistence mode the driver initialises every GPU for each question, which takes seconds on large boards.
    type: int
    default: 15
requirements:
  - Linux, Python 3.8 or newer on the host; the standard library only.
  - Runs as root.
"""

EXAMPLES = r"""
- name: Read the host
  rackready.gpu.gpu_host_facts:

- name: Show the GPUs that are on the bus
  ansible.builtin.debug:
    var: ansible_facts['gpu_host']['gpus']

- name: Give a large board without persistence mode more time
  rackready.gpu.gpu_host_facts:
    smi_timeout: 60
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: success
  type: dict
  contains:
    gpu_host:
      description:
        - The host. Every field, with its unit and what V(null) means there, is described in
          C(plugins/plugin_utils/schemas/facts.schema.json) of the collection.
      type: dict
      contains:
        gpus:
          description: NVIDIA GPUs on the PCI bus, sorted by bus id.
          type: list
          elements: dict
          sample:
            - pci_bus_id: "0000:1a:00.0"
              pci_id: "10de:2330"
              subsystem_id: "10de:16c1"
              class: "0302"
              driver: nvidia
              numa_node: 0
              link: {speed_gts: 32.0, width: 16, max_speed_gts: 32.0, max_width: 16}
        nvidia_smi:
          description: What C(nvidia-smi) says, or why it says nothing.
          type: dict
          sample: {state: hung, error: "nvidia-smi did not end within 15 s and was given up", seconds: 15.3, driver_version: null, cuda_version: null, gpus: []}
        holders:
          description: Processes that have an NVIDIA device node open.
          type: list
          elements: dict
          sample:
            - {device: /dev/nvidia0, pid: 4711, command: python3 train.py, unit: session-3.scope, container: null, role: workload}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackready.gpu.plugins.module_utils.facts import gather
from ansible_collections.rackready.gpu.plugins.module_utils.units import UnitsError


def main() -> None:
    """Entry point."""
    module = AnsibleModule(argument_spec={"smi_timeout": {"type": "int", "default": 15}}, supports_check_mode=True)
    name = os.uname().nodename
    if module.params["smi_timeout"] < 1:
        module.fail_json(msg=f"{name}: smi_timeout is {module.params['smi_timeout']}; give a number of seconds from 1 on.")
    if os.geteuid() != 0:
        module.fail_json(
            msg=f"{name}: gpu_host_facts runs as user {os.geteuid()} and needs root, since who holds a GPU and what the engine runs is hidden from others. "
            "Set `become: true` or connect as root."
        )
    try:
        facts = gather(module.params["smi_timeout"])
    except UnitsError as error:
        module.fail_json(msg=f"{name}: systemd does not answer ({error}), so no unit can be planned for. Look at `systemctl status` on the host and run again.")
    except OSError as error:
        module.fail_json(msg=f"{name}: the host cannot be read: {error}. Mend that file system or mount and run again.")
    module.exit_json(changed=False, ansible_facts={"gpu_host": facts})


if __name__ == "__main__":
    main()
