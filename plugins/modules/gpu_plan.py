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
  - Groups that set one of the variables to different values for a host are refused unless one is part of the other or an explicit
    C(ansible_group_priority) decides. Ansible would silently take the one that lies deepest, then the one whose name sorts last.
  - Impossible requests are refused in whole sentences before anything is changed. The plan is returned all the same.
  - The command C(rackready plan) makes the same plans from facts that were saved, before a host is racked.
author:
  - rackready contributors (@rackready)
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
    description:
      - Whether refusals fail the task. Ansible prints all that a failed task returns, so the playbooks leave that to a task of their own, which prints
        RV(difference).
    type: bool
    default: true
  aside:
    description: Areas that RV(difference) says nothing of, beside the smoke test.
    type: list
    elements: str
    default: []
notes:
  - The variables of the collection are set in the inventory. All are optional. Names that begin like them and are not among
    them are refused.
  - 'C(gpu_stack_release) - The stack release: a file of the catalog''s releases/ (text; default V(2026.11-longterm)).'
  - C(gpu_expected) - The GPUs that the host must have; without it any are taken (mapping of V(model), V(count)).
  - 'C(mig_layout) - "off", or a list of {gpus, instances}: gpus is all, a model, or a list of indices, UUIDs or PCI bus ids;
    instances is profiles to numbers of them (default V(off)).'
  - C(gpu_tenants) - Tenants of the host; nothing uses them yet (list; default V([])).
  - C(nvidia_driver_branch) - Another driver branch than the release's (whole number or text).
  - C(nvidia_driver_version) - One exact driver version (text).
  - C(nvidia_driver_flavour) - Kernel modules, instead of those that fit the GPUs best (one of V(open), V(proprietary)).
  - C(nvidia_driver_kernel_change_ok) - Another kernel may be installed; no effect yet, kernels are never changed (true or false;
    default V(false)).
  - C(nvidia_driver_reboot_ok) - The host may be rebooted; no effect yet, hosts are never rebooted (true or false; default V(false)).
  - C(nvidia_driver_drain) - Workloads may be drained; no effect yet, workloads are never touched (true or false; default V(false)).
  - C(nvidia_container_toolkit_version) - Another toolkit version than the release's (text).
  - C(docker_source) - Docker's packages or the distribution's (one of V(docker), V(distribution)).
  - C(docker_daemon_options) - Merged into daemon.json (mapping; default V({})).
  - C(pytorch_image_ref) - A full image reference with a tag or digest (text).
  - 'C(pytorch_image_trust) - What makes an image trusted: its digest in the lock (one of V(digest); default V(digest)).'
  - 'C(smoke_test_tier) - How much is tested: quick takes at most 2 minutes, accept 6 on one GPU and 10 on several, burn smoke_test_burn_minutes
    more (one of V(quick), V(accept), V(burn); default V(quick)).'
  - C(smoke_test_burn_minutes) - How long the tier burn computes on after what accept does (whole number; default V(60)).
  - C(smoke_test_backend) - cuda, or cpu on simulated hosts (one of V(cuda), V(cpu); default V(cuda)).
  - C(smoke_test_ulimits) - Limits of the test container, as docker run --ulimit takes them (list; default V(["memlock=-1",
    "stack=67108864", "nofile=65536:65536"])).
  - C(smoke_test_env) - Environment of the test container (mapping; default V({})).
  - C(smoke_test_degraded) - Whether a degraded check rejects the host (one of V(accept), V(reject); default V(accept)).
  - C(smoke_test_data_paths) - Directories of which the smoke test tells the read speed, as advice (list; default V([])).
  - C(smoke_test_cluster_interface) - Network interface over which hosts are tested together, instead of that of the route
    to the first one; playbooks/verify_cluster.yml reads it (text).
  - C(smoke_test_cluster_port) - TCP port at which hosts that are tested together meet, on the first one; playbooks/verify_cluster.yml
    reads it (whole number; default V(29500)).
  - C(smoke_test_timer) - "off", or when an idle host tests itself in the tier quick, daily, weekly, monthly, or days and a time in systemd's words, such as
    Sat 03:30, Mon..Fri 04:00, *-*-01 04:00 (text; default V(off)).
  - C(smoke_test_force) - Test also a host whose stamp matches; playbooks/verify.yml reads it (true or false).
  - 'C(rackready_mirror) - Base addresses of mirrors: repository names to addresses, registries to registries. A login does
    not belong there (mapping of V(packages), V(images); default V({})).'
  - C(rackready_bundle) - Path of an offline bundle; no effect yet (text).
  - C(rackready_records_dir) - Directory on the controller where records are written, instead of records/ of the project (text).
  - C(rackready_pin_for) - Which distributions and architectures pin.yml asks for when no host's facts are known (list; default
    V(["debian-13/x86_64"])).
  - C(rackready_ca_path) - PEM file of certificate authorities that pin.yml trusts on the controller, instead of the system's
    (text).
  - C(rackready_lock) - Written by playbooks/pin.yml (mapping).
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
  description: >-
    The plan in readable lines: refusals and warnings, whether a reboot or a drain is needed, what is downloaded and about how long that takes, then each
    area's state now and planned, with its actions in order and the rules and sources that decided it.
  returned: success
  type: list
  elements: str
difference:
  description: >-
    Why the host is not as planned (its smoke test aside): the refusals, else one sentence that names every area that differs and what differs there first.
    Empty where the host is as planned.
  returned: success
  type: str
msg:
  description: The refusals, one sentence a line.
  returned: failure
  type: str
"""
