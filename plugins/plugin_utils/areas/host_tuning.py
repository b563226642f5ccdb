# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area host_tuning: the limit of locked memory in login sessions."""

from __future__ import annotations

from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import AreaPlan, Context, FileSpec, Reason, file_actions, files_state

# "*" does not cover root in limits.conf.
LIMITS = FileSpec(
    "/etc/security/limits.d/90-rackready.conf",
    "# Managed by rackready (role host_tuning).\n" + "".join(f"{who} {kind} memlock unlimited\n" for who in ("*", "root") for kind in ("soft", "hard")),
)


def plan(context: Context) -> AreaPlan:
    """Locked memory without a limit for everybody."""
    files = [LIMITS]
    target, actual = files_state(context, files)
    return AreaPlan(
        desired={"files": [spec.as_dict() for spec in files]},
        target={"files": target},
        actual={"files": actual},
        reasons=[Reason("RDMA and pinned host memory need locked memory without a limit", "recall")],
        actions=file_actions(context, files),
        files=files,
    )
