# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attributes that every module of the collection states."""

from __future__ import annotations


class ModuleDocFragment:
    """Use it with ``extends_documentation_fragment: [rackready.gpu.attributes]`` and say ``support`` for each attribute."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and say what it would change without changing it.
  diff_mode:
    description: Shows what it changed, or in check mode would change, when the run asks for differences.
  idempotent:
    description: Run again on a host that has not changed in between, it changes nothing.
"""

    READ_ONLY = r"""
options: {}
attributes:
  check_mode:
    support: full
    details: The module changes nothing, so it does the same in check mode.
  diff_mode:
    support: N/A
    details: The module changes nothing.
  idempotent:
    support: full
    details: The module changes nothing.
"""
