# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The lab: simulated GPU hosts, a signed package repository and an image registry, as containers on one machine.

``./dev lab up`` builds it, ``./dev lab down`` removes all of it and nothing else.
"""
