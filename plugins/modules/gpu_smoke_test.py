#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test the GPUs of a host in a container and give a verdict."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_smoke_test
short_description: Test the GPUs of a host in a container and give a verdict
version_added: 0.1.0
description:
  - Looks at the host (count of GPUs, holders, driver, device nodes, memory errors, fabric), then runs the GPU tests in the given image, one process
    for each GPU, then looks for memory errors again.
  - Matrix products are checked element by element against integers computed on the CPU, collectives likewise. There is no fallback to the CPU.
  - Figures are held against floors of the model and against the median of the host's GPUs. Memory errors, the kernel's log, links and clocks are
    looked at before, while and after the GPUs work; only what is new counts.
  - Holds a container while systemd reloads, and uses its GPUs again. That is not tried while another container has GPUs, which it could lose.
  - Repeats the run of all ranks at most once, for what a second try can answer (RV(retries)), and never after a wrong result.
  - Gives exactly one verdict. Everything that could not be shown makes it C(incomplete), never C(accepted).
  - Fails, with all return values, unless the verdict is C(accepted) or C(simulated).
  - Starts nothing while a GPU is in use, and ends no process but its own container.
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
    description: What computes. C(cpu) with gloo runs the same tests on simulated hosts; what would be C(accepted) is called C(simulated) then.
    type: str
    choices: [cuda, cpu]
    default: cuda
  tier:
    description:
      - How thorough the test is. C(quick) (at most 2 minutes) makes exact products and sums and measures what a GPU is bought for. C(accept) (at most
        6 minutes on one GPU, 10 on several) makes every exact check, measures every figure and takes training steps. C(burn) does that and then
        computes exactly checked products for O(burn_minutes).
    type: str
    choices: [quick, accept, burn]
    default: quick
  gpus:
    description: The GPUs that the plan expects on the host. Each of them needs a result of its own.
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
        description: UUID, where it is known already.
        type: str
      name:
        description: Product name, where it is known already.
        type: str
      compute_capability:
        description: Compute capability, for example V(9.0). Decides which number formats are required and how the fabric reports.
        type: str
      model:
        description: Slug of the card in the catalog; null where the catalog does not know it. Floors are those of this model.
        type: str
      memory_gb:
        description: Memory that a card of this model is sold with, in GB.
        type: int
  expected:
    description: What was bought (the variable C(gpu_expected)); null where the inventory does not say.
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
  ulimits:
    description: Limits of the container in Docker's syntax. The limits that it really has must be these.
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
    description: Check name to reason, for checks that the plan excuses. Nothing else makes a check not applicable.
    type: dict
    default: {}
  degraded:
    description: Whether a required check that is degraded counts as passed or as failed.
    type: str
    choices: [accept, reject]
    default: accept
  floors:
    description:
      - Model to figure to floors, each with the number of GPUs, kernel and conditions that it stands for, and whether it was confirmed on hardware.
      - A figure below a confirmed floor fails. One without a floor, or with one that was never confirmed, is C(degraded), never a pass.
    type: dict
    default: {}
  burn_minutes:
    description: How long the tier C(burn) computes on.
    type: int
    default: 60
  data_paths:
    description: Directories of which the read speed is told. Advice that never decides.
    type: list
    elements: str
    default: []
  stamp:
    description:
      - What to write to C(/var/lib/rackready/stamp.json) after success, with verdict and time.
      - Its C(image_digest) and C(tier) must be those that are tested. UUIDs that are null are filled in.
      - The stamp that is there is removed before the container is started, so that a test that is killed leaves none, and when a test fails.
      - None is written either when the run that asked is gone by then, and its record with it. The next run tests again.
        It stays where nothing was started and nothing failed, as where a GPU is in use.
    type: dict
    required: true
    suboptions:
      release:
        description: Stack release of the plan.
        type: str
        required: true
      image_digest:
        description: Digest of the image.
        type: str
        required: true
      driver:
        description: Driver version. The loaded driver must be this one.
        type: str
        required: true
      gpus:
        description: UUIDs, sorted, or null where no driver has told them yet.
        type: list
        elements: str
      mig:
        description: MIG layout.
        type: raw
      tier:
        description: Tier of the test.
        type: str
        required: true
  timeout:
    description: Seconds for everything; without it what the tier may take. The container's part of it is held from outside the container.
    type: int
  smi_timeout:
    description: Seconds that nvidia-smi may take.
    type: int
    default: 15
"""

EXAMPLES = r"""
- name: Test the GPUs
  rackready.gpu.gpu_smoke_test:
    image: nvcr.io/nvidia/pytorch@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    gpus:
      - {pci_bus_id: "0000:1a:00.0", pci_id: "10de:2330", compute_capability: "9.0"}
    not_applicable:
      fabric: the board has no NVLink fabric
    stamp:
      release: 2026.11-longterm
      image_digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
      driver: 580.178.04
      mig: "off"
      tier: quick
"""

RETURN = r"""
verdict:
  description: C(accepted), C(simulated), C(rejected) or C(incomplete).
  returned: always, except in check mode
  type: str
reason:
  description: One sentence why.
  returned: always
  type: str
remedy:
  description: What to do now; null where nothing is to be done.
  returned: always, except in check mode
  type: str
checks:
  description: Every check, required ones without a result included. The shape is that of C(check.schema.json).
  returned: always, except in check mode
  type: list
  elements: dict
seconds:
  description: Seconds that all took.
  returned: always, except in check mode
  type: float
image:
  description: The image that was tested in.
  returned: always
  type: str
backend:
  description: What computed.
  returned: always
  type: str
tier:
  description: How thorough the test was.
  returned: always
  type: str
torch:
  description: Versions of torch, CUDA and NCCL in the image and the architectures of its kernels; null where none was reported.
  returned: always, except in check mode
  type: dict
topology:
  description: How the GPUs are connected, as C(nvidia-smi topo -m) prints it; null where it does not.
  returned: always, except in check mode
  type: str
not_exercised:
  description: What a test of this tier on these GPUs never touches, in sentences.
  returned: always, except in check mode
  type: list
  elements: str
retries:
  description: The repetition of the run, if there was one, with reason, seconds of the first run and environment of the second.
  returned: always, except in check mode
  type: list
  elements: dict
container_started:
  description: Whether the container was started at all.
  returned: always, except in check mode
  type: bool
containers_removed:
  description: Containers of earlier, killed tests that were removed first.
  returned: always, except in check mode
  type: list
  elements: str
stamp:
  description: The stamp that is on the host now; null where there is none.
  returned: always, except in check mode
  type: dict
"""

import signal
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackready.gpu.plugins.module_utils import facts, smoke_machine, smoke_test, stamp, verdict
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import SHM_SIZE, RequestError, request_of
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
EXPECTED = {"model": {"type": "str", "required": True}, "count": {"type": "int", "required": True}}
STAMP = {
    "release": {"type": "str", "required": True},
    "image_digest": {"type": "str", "required": True},
    "driver": {"type": "str", "required": True},
    "gpus": {"type": "list", "elements": "str"},
    "mig": {"type": "raw"},
    "tier": {"type": "str", "required": True},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "image": {"type": "str", "required": True},
    "backend": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
    "tier": {"type": "str", "choices": ["quick", "accept", "burn"], "default": "quick"},
    "gpus": {"type": "list", "elements": "dict", "required": True, "options": GPU},
    "ulimits": {"type": "list", "elements": "str", "default": ["memlock=-1", "stack=67108864"]},
    "shm_size": {"type": "str", "default": SHM_SIZE},
    "env": {"type": "dict", "default": {}},
    "not_applicable": {"type": "dict", "default": {}},
    "degraded": {"type": "str", "choices": ["accept", "reject"], "default": "accept"},
    "expected": {"type": "dict", "options": EXPECTED},
    "floors": {"type": "dict", "default": {}},
    "burn_minutes": {"type": "int", "default": 60},
    "data_paths": {"type": "list", "elements": "str", "default": []},
    "stamp": {"type": "dict", "required": True, "options": STAMP},
    "timeout": {"type": "int"},
    "smi_timeout": {"type": "int", "default": 15},
}


def ended_from_outside(number: int, frame: object) -> None:
    """Leave by an exception, so that the container is ended on the way out."""
    raise SystemExit(128 + number)


def main() -> None:
    """Module entry point."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    request = request_of(module.params)
    given = {"image": request.image, "backend": request.backend, "tier": request.tier}
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended_from_outside)
    try:
        if module.check_mode:
            request.validate()
            module.exit_json(changed=True, reason=smoke_test.plan_sentence(request), **given)
        smi_timeout = module.params["smi_timeout"]
        result = smoke_test.run_test(request, smoke_machine.real_machine(lambda: facts.gather(smi_timeout), smi_timeout))
    except (RequestError, UnitsError, OSError) as error:
        # Read again: the test may have begun, and a record must not show a stamp that is gone.
        ended = {"verdict": verdict.INCOMPLETE, "reason": str(error), "remedy": None, "checks": [], "stamp": stamp.read()}
        module.fail_json(msg=f"smoke test could not be made: {error}", **ended, **given)
    if result["verdict"] in (verdict.ACCEPTED, verdict.SIMULATED):
        module.exit_json(**result)
    remedy = f" What to do: {result['remedy']}." if result["remedy"] else ""
    module.fail_json(msg=f"{result['verdict']}: {result['reason']}.{remedy}", **result)


if __name__ == "__main__":
    main()
