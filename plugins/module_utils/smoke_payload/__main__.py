# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs inside the image: one process a GPU under ``torchrun -m smoke_payload``, JSON lines on stdout. Standard library and torch (2.1 to 2.13) only.

It measures and reports; what is required and what the verdict is, the host decides. Nothing here turns "could not run" into a pass, and on the backend
``cuda`` nothing ever computes on the CPU in place of a GPU.
"""

from __future__ import annotations

import faulthandler
import os
import sys

from .options import SETTINGS, parse
from .rank import Rank
from .report import Reporter


def main() -> None:
    options = parse(os.environ[SETTINGS])
    # A thread of its own, in C: it works while the interpreter is stuck in a call. The parent's limit is shorter; this one is for a parent that died.
    faulthandler.dump_traceback_later(options.limit, exit=True)
    env = dict(os.environ)
    report = Reporter(options.run, int(env["RANK"]), lambda data: os.write(1, data))
    Rank(options, env, report).main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything has been said: the tear-down of CUDA and of the communicator is not tested, and must not turn a result into a hang.
    os._exit(0)


if __name__ == "__main__":
    main()
