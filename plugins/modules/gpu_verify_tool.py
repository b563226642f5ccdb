#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install what a host tests itself with."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_verify_tool
short_description: Install what a GPU host tests itself with
version_added: 0.1.0
description:
  - Writes the command C(/usr/local/sbin/rackready-verify), which makes the test of M(rackready.gpu.gpu_smoke_test) without Ansible, and the request that it
    reads, C(/etc/rackready/verify.json), which only root may read. The command is one file of this collection's own modules and needs Python 3.8 at
    C(/usr/bin/python3) and nothing else.
  - Writes C(rackready-verify.service) and C(rackready-verify.timer), and switches the timer on or off.
  - Each file is there whole or not at all. systemd is told to reload only where it has loaded a unit that is written anew.
author:
  - rackready contributors (@rackready)
extends_documentation_fragment:
  - rackready.gpu.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Of the command its digest is shown, of the request everything but the values of its environment.
  idempotent:
    support: full
options:
  request:
    description: What is to be tested, in the options of M(rackready.gpu.gpu_smoke_test) (C(gpu_plan.areas.smoke_test.desired)).
    type: dict
    required: true
  timer:
    description: V(off), or when the timer runs the test, in the words of C(OnCalendar=) of systemd. The tier is C(quick), and GPUs in use are left alone.
    type: str
    default: "off"
seealso:
  - module: rackready.gpu.gpu_smoke_test
"""

EXAMPLES = r"""
- name: Let the host test itself every night
  rackready.gpu.gpu_verify_tool:
    request: "{{ ansible_facts.gpu_plan.areas.smoke_test.desired }}"
    timer: daily

- name: Install the command alone, with the timer off
  rackready.gpu.gpu_verify_tool:
    request: "{{ ansible_facts.gpu_plan.areas.smoke_test.desired }}"

- name: Test the host now, without Ansible's own module
  ansible.builtin.command:
    argv: [/usr/local/sbin/rackready-verify, --json]
  register: verified
  changed_when: true
  failed_when: verified.rc not in [0, 3]
"""

RETURN = r"""
actions:
  description: What was done, or would be done in check mode.
  returned: success
  type: list
  elements: str
  sample: ["write /etc/rackready/verify.json", "systemctl enable --no-reload rackready-verify.timer", "systemctl start rackready-verify.timer"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import RequestError, request_of
from ansible_collections.rackready.gpu.plugins.module_utils.verify_install import VerifyToolError, bring


def main() -> None:
    """Module entry point."""
    module = AnsibleModule(
        argument_spec={"request": {"type": "dict", "required": True}, "timer": {"type": "str", "default": "off"}},
        supports_check_mode=True,
    )
    request = module.params["request"]
    try:
        request_of(request).validate()
        result = bring(request, module.params["timer"], Commands(), module.check_mode)
    except (RequestError, KeyError, TypeError, AttributeError) as error:
        module.fail_json(msg=f"the request is none that the command could use ({type(error).__name__}: {error}); give it as the plan has it")
    except VerifyToolError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"what the host tests itself with cannot be written ({error}); mend that file system and run again")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
