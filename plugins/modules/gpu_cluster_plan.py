#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of gpu_cluster_plan; the action plugin of the same name does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_cluster_plan
short_description: Decide whether the hosts of a play can be tested together
version_added: 0.1.0
description:
  - Looks at what M(rackready.gpu.gpu_host_facts), M(rackready.gpu.gpu_plan) and M(rackready.gpu.gpu_cluster_network) found on all hosts of the play.
  - Refuses, with a sentence for each cause, before anything is started; then none of the hosts is tested.
  - Causes are fewer than two hosts; fewer forks than hosts, or C(serial), as all have to run at once; a host that could not be reached, is not as planned,
    has no stamp of a successful smoke test or has GPUs divided by MIG; hosts with another image, backend or architecture than the first one, or with the
    same address.
  - Hosts may have different numbers of GPUs and different models; their speed is compared among those alike.
  - Runs on the controller. The hosts are not contacted and nothing is changed.
author:
  - rackready contributors (@rackready)
extends_documentation_fragment:
  - rackready.gpu.attributes
  - rackready.gpu.attributes.read_only
options:
  port:
    description: TCP port of the first host at which all meet.
    type: int
    default: 29500
seealso:
  - module: rackready.gpu.gpu_cluster_test
  - module: rackready.gpu.gpu_cluster_verdict
"""

EXAMPLES = r"""
- name: See whether these hosts can be tested together
  rackready.gpu.gpu_cluster_plan:
"""

RETURN = r"""
ansible_facts:
  description: What this host is to do, as the fact C(gpu_cluster_plan).
  returned: success
  type: dict
  contains:
    gpu_cluster_plan:
      description: The options of M(rackready.gpu.gpu_cluster_test) for this host, and the policy for what is degraded.
      type: dict
      returned: success
msg:
  description: Why the hosts are not tested together, one sentence a line.
  returned: failure
  type: str
cluster:
  description: The same with the verdict C(refused), for the record.
  returned: failure
  type: dict
"""
