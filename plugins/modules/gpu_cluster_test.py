#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take a host's part in a test of several hosts together."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_cluster_test
short_description: Take a host's part in a test of several hosts together
version_added: 0.1.0
description:
  - Must run on all hosts of the test at the same time. M(rackready.gpu.gpu_cluster_plan) gives its options.
  - Looks at the host, then meets the other hosts over TCP. The first host listens, the others come to it, and everybody connects to everybody. Who cannot take
    part or cannot be reached is named, and then nothing is started anywhere.
  - Then runs the image with the host's network, one process for each GPU (on simulated hosts two at most). All-reduce of integers over all GPUs is compared
    element by element; then hosts in pairs, each with all GPUs of both, are compared and timed; then all of them together. Up to 16 hosts meet each other one,
    of more each one meets four.
  - Returns a report and judges nothing across hosts, which M(rackready.gpu.gpu_cluster_verdict) does. So it does not fail where something is wrong.
  - Ends within its limit whatever hardware and network do, starts nothing while a GPU is in use, and ends no process but its own container.
  - Neither reads nor writes the stamp of M(rackready.gpu.gpu_smoke_test).
author:
  - rackready contributors (@rackready)
extends_documentation_fragment:
  - rackready.gpu.attributes
attributes:
  check_mode:
    support: full
    details: Starts nothing, and says in RV(reason) what it would test.
  diff_mode:
    support: none
  idempotent:
    support: none
    details: Tests again whenever it is called.
options:
  image:
    description: Image to test in, by digest. It must be on the host already, nothing is pulled.
    type: str
    required: true
  backend:
    description: What computes, C(cuda) with NCCL or, on simulated hosts, C(cpu) with gloo.
    type: str
    choices: [cuda, cpu]
    default: cuda
  gpus:
    description: The GPUs that the plan expects on the host, as M(rackready.gpu.gpu_smoke_test) takes them.
    type: list
    elements: dict
    required: true
    suboptions:
      pci_bus_id:
        description: PCI address, for example V(0000:1a:00.0).
        type: str
        required: true
      pci_id:
        description: PCI vendor and device, for example V(10de:2330).
        type: str
      uuid:
        description: UUID.
        type: str
      name:
        description: Product name.
        type: str
      compute_capability:
        description: Compute capability, for example V(9.0).
        type: str
      model:
        description: Slug of the card in the catalog.
        type: str
      memory_gb:
        description: Memory that a card of this model is sold with, in GB.
        type: int
  expected:
    description: What was bought (the variable C(gpu_expected)).
    type: dict
    suboptions:
      model:
        description: Slug of the card in the catalog.
        type: str
        required: true
      count:
        description: Number of cards.
        type: int
        required: true
  hosts:
    description: All hosts of the test in the order of their ranks, the same on each of them.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name in the inventory.
        type: str
        required: true
      address:
        description: IPv4 address at which the others reach it.
        type: str
        required: true
      ranks:
        description: How many processes it gets.
        type: int
        required: true
  node:
    description: Which of O(hosts) this one is, from 0.
    type: int
    required: true
  interface:
    description: Network interface that has this host's address. NCCL and gloo are told to use it.
    type: str
    required: true
  port:
    description: TCP port of the first host at which all meet. Between the hosts all other ports must be open as well.
    type: int
    default: 29500
  token:
    description: The same on all hosts of one test; who does not know it is not listened to.
    type: str
    required: true
  infiniband:
    description: Active ports of adapters for RDMA, which NCCL should use.
    type: list
    elements: str
    default: []
  devices:
    description: Device nodes for RDMA that the container gets, and with them the right to lock memory.
    type: list
    elements: str
    default: []
  ulimits:
    description: Limits of the container in Docker's syntax.
    type: list
    elements: str
    default: ["memlock=-1", "stack=67108864"]
  shm_size:
    description: Size of the container's C(/dev/shm) in Docker's syntax.
    type: str
    default: 1g
  env:
    description: Environment of the tests, for example NCCL settings.
    type: dict
    default: {}
  not_applicable:
    description: Check name to reason, for checks of the host that the plan excuses.
    type: dict
    default: {}
  driver:
    description: Driver version. The loaded driver must be this one.
    type: str
    required: true
  smi_timeout:
    description: Seconds that nvidia-smi may take.
    type: int
    default: 15
"""

EXAMPLES = r"""
- name: Test all hosts together
  rackready.gpu.gpu_cluster_test:
    image: "{{ ansible_facts.gpu_cluster_plan.image }}"
    gpus: "{{ ansible_facts.gpu_cluster_plan.gpus }}"
    hosts: "{{ ansible_facts.gpu_cluster_plan.hosts }}"
    node: "{{ ansible_facts.gpu_cluster_plan.node }}"
    interface: "{{ ansible_facts.gpu_cluster_plan.interface }}"
    token: "{{ ansible_facts.gpu_cluster_plan.token }}"
    driver: "{{ ansible_facts.gpu_cluster_plan.driver }}"
"""

RETURN = r"""
ansible_facts:
  description: This host's report, as the fact C(gpu_cluster_report).
  returned: always, except in check mode
  type: dict
  contains:
    gpu_cluster_report:
      description:
        - C(checks) of this host alone, C(pairs) and C(all_reduce) as the payload gave them (null where it gave nothing, with the reason in C(pairs_reason) and
          C(all_reduce_reason)), C(torch), C(seconds), C(container_started), C(containers_removed), C(node) and C(token).
      type: dict
      returned: always, except in check mode
reason:
  description: What would be tested.
  returned: in check mode
  type: str
"""

import signal
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackready.gpu.plugins.module_utils import facts, smoke_cluster, smoke_machine
from ansible_collections.rackready.gpu.plugins.module_utils.cluster_meeting import Peer, meet
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import Bought
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import RequestError
from ansible_collections.rackready.gpu.plugins.module_utils.units import UnitsError

GPU = {
    "pci_bus_id": {"type": "str", "required": True},
    "pci_id": {"type": "str"},
    "uuid": {"type": "str"},
    "name": {"type": "str"},
    "compute_capability": {"type": "str"},
    "model": {"type": "str"},
    "memory_gb": {"type": "int"},
}
HOST = {"name": {"type": "str", "required": True}, "address": {"type": "str", "required": True}, "ranks": {"type": "int", "required": True}}
EXPECTED = {"model": {"type": "str", "required": True}, "count": {"type": "int", "required": True}}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "image": {"type": "str", "required": True},
    "backend": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
    "gpus": {"type": "list", "elements": "dict", "required": True, "options": GPU},
    "expected": {"type": "dict", "options": EXPECTED},
    "hosts": {"type": "list", "elements": "dict", "required": True, "options": HOST},
    "node": {"type": "int", "required": True},
    "interface": {"type": "str", "required": True},
    "port": {"type": "int", "default": 29500},
    "token": {"type": "str", "required": True, "no_log": False},
    "infiniband": {"type": "list", "elements": "str", "default": []},
    "devices": {"type": "list", "elements": "str", "default": []},
    "ulimits": {"type": "list", "elements": "str", "default": ["memlock=-1", "stack=67108864"]},
    "shm_size": {"type": "str", "default": "1g"},
    "env": {"type": "dict", "default": {}},
    "not_applicable": {"type": "dict", "default": {}},
    "driver": {"type": "str", "required": True},
    "smi_timeout": {"type": "int", "default": 15},
}


def request_of(params: dict[str, Any]) -> smoke_cluster.Request:
    """The module's parameters as a request."""
    return smoke_cluster.Request(
        image=params["image"],
        backend=params["backend"],
        gpus=params["gpus"],
        peers=[Peer(host["name"], host["address"]) for host in params["hosts"]],
        ranks=[host["ranks"] for host in params["hosts"]],
        node=params["node"],
        interface=params["interface"],
        port=params["port"],
        token=params["token"],
        ulimits=params["ulimits"],
        shm_size=params["shm_size"],
        env={str(key): str(value) for key, value in params["env"].items()},
        not_applicable={str(key): str(value) for key, value in params["not_applicable"].items()},
        driver=params["driver"],
        bought=Bought(params["expected"]["model"], params["expected"]["count"]) if params["expected"] else None,
        infiniband=params["infiniband"],
        devices=params["devices"],
    )


def ended_from_outside(number: int, frame: object) -> None:
    """Leave by an exception, so that the container is ended on the way out."""
    raise SystemExit(128 + number)


def main() -> None:
    """Module entry point."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    request = request_of(module.params)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended_from_outside)
    try:
        if module.check_mode:
            request.validate()
            module.exit_json(changed=False, reason=smoke_cluster.plan_sentence(request))
        smi_timeout = module.params["smi_timeout"]
        report = smoke_cluster.run_test(request, smoke_machine.real_machine(lambda: facts.gather(smi_timeout), smi_timeout), meet)
    except (RequestError, UnitsError, OSError) as error:
        module.fail_json(msg=f"the test of several hosts could not be made: {error}")
    module.exit_json(changed=False, ansible_facts={"gpu_cluster_report": report})


if __name__ == "__main__":
    main()
