# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""A simulated GPU host: a test double, see README.md beside this package. Standard library only."""
