#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of gpu_plan; the action plugin of the same name does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_plan
short_description: Plan what a GPU host needs
version_added: 0.1.0
description:
  - Compares the facts of M(rackready.gpu.gpu_host_facts) with what the inventory asks for and returns a plan, area by area.
  - Runs on the controller. The host is not contacted and nothing is changed, in check mode and outside of it.
  - All variables of the collection are checked first. An unknown name with one of its prefixes is refused, because Ansible would silently ignore it.
  - Impossible requests are refused in whole sentences before anything is changed. The plan is returned all the same.
author:
  - rackready contributors
extends_documentation_fragment:
  - rackready.gpu.attributes
attributes:
  check_mode:
    support: full
    details: Plans without changing anything, as it always does. In check mode the task counts as changed when the host is not as planned.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  refuse:
    description: Whether refusals fail the task.
    type: bool
    default: true
  require_converged:
    description: Whether the task fails when the host is not as planned (its smoke test aside). For the end of a run.
    type: bool
    default: false
seealso:
  - module: rackready.gpu.gpu_host_facts
  - module: rackready.gpu.stack_sources
"""

EXAMPLES = r"""
- name: Read the host
  rackready.gpu.gpu_host_facts:

- name: Plan
  rackready.gpu.gpu_plan:
  register: planned

- name: Show the plan
  ansible.builtin.debug:
    var: planned.text
"""

RETURN = r"""
ansible_facts:
  description: The plan, as the fact C(gpu_plan).
  returned: always
  type: dict
  contains:
    gpu_plan:
      description: Release, areas, warnings, refusals and what must be reachable; see C(schemas/plan.schema.json).
      type: dict
      returned: always
text:
  description: The plan in readable lines.
  returned: always
  type: list
  elements: str
msg:
  description: The refusals, one sentence a line; with O(require_converged=true) what is not as planned.
  returned: failure
  type: str
"""
