# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations


class LabError(Exception):
    """A sentence for people: what is wrong, why, and what to do now."""
