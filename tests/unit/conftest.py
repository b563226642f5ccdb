# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""For every unit test: a slow or busy machine is no finding of a property test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("rackready", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rackready")
