# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the collection lies that belongs to this package: beside it in a checkout and in the wheel."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def make_importable() -> None:
    """Lets Python and Ansible find rackready.gpu, this package's before any other that is installed. Call it before anything of the collection is imported."""
    from ansible.plugins.loader import init_plugin_loader  # noqa: PLC0415  # takes half a second, which `rackready report` need not wait for

    init_plugin_loader([str(path) for path in (ROOT / "collections", ROOT) if (path / "ansible_collections/rackready/gpu").is_dir()])
