# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller package: what people use beside ansible-playbook."""

__version__ = "0.1.0"
