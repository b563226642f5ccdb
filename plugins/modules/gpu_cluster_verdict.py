#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of gpu_cluster_verdict; the action plugin of the same name does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_cluster_verdict
short_description: Judge hosts that were tested together
version_added: 0.1.0
description:
  - Takes what M(rackready.gpu.gpu_cluster_test) returned on all hosts of the play and gives each host its verdict.
  - A wrong sum C(fails). Where all pairs with wrong sums have one host in them, that host fails and the others could not be tested.
  - The bandwidth of a pair is that of its slower host, so a host is worth the best of its pairs. Five percent below the median of the hosts alike (three or
    more) it is C(degraded), eight percent below it fails. A pair that stays below what both its hosts reach elsewhere has a slow way between them. With two
    hosts nobody can tell which of them is slow, which is said.
  - A figure without a floor that was confirmed on hardware is C(degraded). What was not told, by both hosts of a pair, is C(could_not_run).
  - The verdict of M(rackready.gpu.gpu_smoke_test) and the stamp stay as they are.
  - Fails, with all return values, unless the verdict is C(accepted) or C(simulated).
  - Runs on the controller. The hosts are not contacted and nothing is changed.
author:
  - rackready contributors (@rackready)
extends_documentation_fragment:
  - rackready.gpu.attributes
  - rackready.gpu.attributes.read_only
options: {}
seealso:
  - module: rackready.gpu.gpu_cluster_plan
  - module: rackready.gpu.gpu_cluster_test
"""

EXAMPLES = r"""
- name: Judge all hosts together
  rackready.gpu.gpu_cluster_verdict:
"""

RETURN = r"""
cluster:
  description: What the test of all hosts together says about this one.
  returned: always
  type: dict
  contains:
    verdict:
      description: C(accepted), C(simulated), C(rejected) or C(incomplete).
      type: str
      returned: always
    reason:
      description: One sentence why.
      type: str
      returned: always
    remedy:
      description: What to do now; null where nothing is to be done.
      type: str
      returned: always
    checks:
      description: Every check of this host. The shape is that of C(check.schema.json).
      type: list
      elements: dict
      returned: always
    hosts:
      description: All hosts of the test, in the order of their ranks.
      type: list
      elements: str
      returned: always
    slow:
      description: Hosts that are slower than the others of their kind.
      type: list
      elements: str
      returned: always
    wrong:
      description: The host that all pairs with wrong sums have in them, if there is one.
      type: list
      elements: str
      returned: always
    pairs:
      description: What this host measured with each other one, as the payload gave it; null where it gave nothing.
      type: dict
      returned: always
    all_reduce:
      description: Bus bandwidth of all hosts together, as the payload gave it; null where it gave nothing.
      type: dict
      returned: always
msg:
  description: Verdict, reason and what to do.
  returned: failure
  type: str
"""
