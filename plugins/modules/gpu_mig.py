#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring GPUs to a MIG layout."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_mig
short_description: Bring GPUs to a MIG layout
version_added: 0.1.0
description:
  - Switches the MIG mode of each GPU and creates or destroys instances until it holds exactly the planned ones.
  - An instance that already is where the plan wants it stays untouched. Nothing is forced; when nvidia-smi refuses, its own words are the error.
  - Only one run at a time changes the layout of a host. Another one waits for at most a minute, then says who holds C(/var/lib/rackready/mig.lock).
  - The state is read again afterwards; a GPU that does not hold the layout then is an error.
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
options:
  gpus:
    description: The layout, GPU by GPU. GPUs that are not listed are left alone.
    type: list
    elements: dict
    required: true
    suboptions:
      pci_bus_id:
        description: PCI bus id as in sysfs, such as V(0000:1a:00.0).
        type: str
        required: true
      mode:
        description: MIG mode of the GPU.
        type: str
        required: true
        choices: [enabled, disabled]
      instances:
        description: GPU instances, each with one compute instance over all of it.
        type: list
        elements: dict
        default: []
        suboptions:
          profile:
            description: Name of the GPU instance profile, such as V(1g.10gb).
            type: str
            required: true
          start:
            description: First memory slice of the instance.
            type: int
            required: true
"""

EXAMPLES = r"""
- name: Split the first GPU in two halves
  rackready.gpu.gpu_mig:
    gpus:
      - pci_bus_id: "0000:1a:00.0"
        mode: enabled
        instances:
          - {profile: 3g.40gb, start: 0}
          - {profile: 3g.40gb, start: 4}

- name: Switch MIG off
  rackready.gpu.gpu_mig:
    gpus:
      - pci_bus_id: "0000:1a:00.0"
        mode: disabled
"""

RETURN = r"""
actions:
  description: The nvidia-smi commands that were run, or would be run in check mode.
  returned: success
  type: list
  elements: str
  sample: ["nvidia-smi -i 0000:1a:00.0 -mig 1", "nvidia-smi mig -i 0000:1a:00.0 -cgi 3g.40gb:0,3g.40gb:4 -C"]
instances:
  description: The instances of these GPUs that are there at the end, by their places; in check mode those that are there now.
  returned: success
  type: list
  elements: dict
  sample: [{pci_bus_id: "0000:1a:00.0", profile: 3g.40gb, start: 0, uuid: MIG-c7384736-a75d-5afc-978f-d2f1294409fd}]
"""


from contextlib import nullcontext
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands
from ansible_collections.rackready.gpu.plugins.module_utils.mig import MigError, apply, locked
from ansible_collections.rackready.gpu.plugins.module_utils.nvidia_smi import Query
from ansible_collections.rackready.gpu.plugins.module_utils.stamp import STATE_DIR

# Creating seven instances on eight GPUs takes seconds; a wedged GPU must not hold the run.
SMI_LIMIT_S = 120
# A layout takes seconds: a run that holds the lock for longer waits for a GPU, and its words say more than ours would.
LOCK_LIMIT_S = 60
BANNER = Path("/proc/driver/nvidia/version")


def main() -> None:
    """Module entry point."""
    module = AnsibleModule(
        argument_spec={
            "gpus": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "pci_bus_id": {"type": "str", "required": True},
                    "mode": {"type": "str", "required": True, "choices": ["enabled", "disabled"]},
                    "instances": {
                        "type": "list",
                        "elements": "dict",
                        "default": [],
                        "options": {"profile": {"type": "str", "required": True}, "start": {"type": "int", "required": True}},
                    },
                },
            }
        },
        supports_check_mode=True,
    )

    commands = Commands()

    def run(command: list[str]) -> None:
        complaint = commands.start(command, SMI_LIMIT_S).finish().complaint(" ".join(command))
        if complaint is not None:
            raise MigError(complaint)

    try:
        with nullcontext() if module.check_mode else locked(STATE_DIR, LOCK_LIMIT_S):
            result = apply(module.params["gpus"], lambda: Query(commands, SMI_LIMIT_S, BANNER.exists()).facts(), run, module.check_mode)
    except MigError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"the lock for changes of MIG cannot be taken ({error}); mend that file system and run again")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
