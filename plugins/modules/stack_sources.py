#!/usr/bin/python
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask package repositories and image registries what they have."""

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_sources
short_description: Ask package repositories and image registries what they have
version_added: 0.1.0
description:
  - Reads the indexes of package repositories and the manifests of images, and compares them with what a plan needs. Neither apt nor dnf is needed for that.
  - Runs on a host before anything is changed, to see that everything is there and can be reached from it, and on the controller to find out exact
    versions and digests.
  - Checks sizes and SHA-256 of indexes and manifests. It does not check the signature of a repository, which apt and dnf do before they install.
  - Collects all problems before it fails.
  - Uses the proxy that C(http_proxy), C(https_proxy) and C(no_proxy) name in its environment, not the one of apt, dnf or the container engine. Set them with
    the keyword C(environment) where a host reaches its sources only through a proxy.
author:
  - rackready contributors (@rackready)
extends_documentation_fragment:
  - rackready.gpu.attributes
  - rackready.gpu.attributes.read_only
options:
  host:
    description: Name of the host for the sentences about problems, usually C(inventory_hostname). Without it the host's own name is used.
    type: str
  repositories:
    description: Package repositories. Entries of one name are one source, a package must be in one of them.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the source.
        type: str
        required: true
      url:
        description: Base address.
        type: str
        required: true
      type:
        description: Whether it is a repository for apt (V(deb)) or for dnf (V(rpm)).
        type: str
        choices: [deb, rpm]
        default: deb
      suites:
        description: Suites; one that ends in V(/) is flat. Required for V(deb), without meaning for V(rpm).
        type: list
        elements: str
      components:
        description: Components of the suites. Flat suites have none.
        type: list
        elements: str
        default: []
      streams:
        description:
          - Module streams of a V(rpm) repository, such as V(nvidia-driver:580-open). Of packages that are in any module only the versions in these streams
            count, as for dnf.
        type: list
        elements: str
        default: []
      architecture:
        description: Architecture as the packages call it, such as V(amd64) or V(x86_64).
        type: str
        default: amd64
      packages:
        description: Package names to the version that must be there; null for any version.
        type: dict
        default: {}
      optional:
        description: More packages whose versions are wanted, but which may be absent.
        type: list
        elements: str
        default: []
      key_url:
        description: Where the public key of the repository is. Without it no key is read.
        type: str
      fingerprint:
        description: Fingerprint that the key must have.
        type: str
      hint:
        description: What to do when a package is missing, for the error message.
        type: str
  images:
    description: Images.
    type: list
    elements: dict
    default: []
    suboptions:
      ref:
        description: Full reference with a tag or digest.
        type: str
        required: true
      digest:
        description: Digest that must be there. Without it the reference is resolved.
        type: str
      insecure:
        description: Use HTTP instead of HTTPS.
        type: bool
        default: false
  timeout:
    description: Seconds that a connection may be silent. A whole answer may take ten times as long.
    type: int
    default: 20
  ca_path:
    description: PEM file of certificate authorities to trust instead of the system's.
    type: path
  fail:
    description: Whether problems fail the module.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Check that everything is there before anything is changed
  rackready.gpu.stack_sources:
    host: "{{ inventory_hostname }}"
    repositories: "{{ ansible_facts.gpu_plan.sources.repositories }}"
    images: "{{ ansible_facts.gpu_plan.sources.images }}"

- name: Find out what a tag means now
  rackready.gpu.stack_sources:
    images:
      - ref: nvcr.io/nvidia/pytorch:26.07-py3
"""

RETURN = r"""
problems:
  description: One sentence for each thing that is missing or cannot be read, with what to do.
  returned: always
  type: list
  elements: str
repositories:
  description: What each repository has of the packages that were asked for.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the source.
      type: str
      returned: always
    url:
      description: Base address.
      type: str
      returned: always
    packages:
      description: Package names to all their versions, oldest first.
      type: dict
      returned: always
    key:
      description: Public key in ASCII armor; null when it was not asked for.
      type: str
      returned: always
    key_sha256:
      description: SHA-256 of the key's text.
      type: str
      returned: always
images:
  description: What each image reference means.
  returned: always
  type: list
  elements: dict
  contains:
    ref:
      description: The reference.
      type: str
      returned: always
    index:
      description: Digest of what the reference names.
      type: str
      returned: always
    platforms:
      description: Platforms to digest and compressed size in bytes.
      type: dict
      returned: always
"""

import platform

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rackready.gpu.plugins.module_utils.sources import look
from ansible_collections.rackready.gpu.plugins.module_utils.web import Web


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str"},
            "repositories": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "url": {"type": "str", "required": True},
                    "type": {"type": "str", "choices": ["deb", "rpm"], "default": "deb"},
                    "suites": {"type": "list", "elements": "str"},
                    "components": {"type": "list", "elements": "str", "default": []},
                    "streams": {"type": "list", "elements": "str", "default": []},
                    "architecture": {"type": "str", "default": "amd64"},
                    "packages": {"type": "dict", "default": {}},
                    "optional": {"type": "list", "elements": "str", "default": []},
                    "key_url": {"type": "str", "no_log": False},
                    "fingerprint": {"type": "str"},
                    "hint": {"type": "str"},
                },
                "required_if": [("type", "deb", ("suites",))],
            },
            "images": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "ref": {"type": "str", "required": True},
                    "digest": {"type": "str"},
                    "insecure": {"type": "bool", "default": False},
                },
            },
            "timeout": {"type": "int", "default": 20},
            "ca_path": {"type": "path"},
            "fail": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    web = Web(module.params["timeout"], module.params["ca_path"])
    result = look(module.params["host"] or platform.node(), module.params["repositories"], module.params["images"], web.fetch, web.ask)
    if result["problems"] and module.params["fail"]:
        module.fail_json(msg="\n".join(result["problems"]), changed=False, **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
