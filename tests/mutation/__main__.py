# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes small errors in the code that judges, one at a time, and runs the unit tests that come by: an error that no test sees is a survivor.

    python -m tests.mutation                       every error in every module (./dev mutate)
    python -m tests.mutation verdict smoke_window  in these modules
    python -m tests.mutation --sample 12           every twelfth of each module

Ends with status 1 where one survives that ``equivalent.txt`` does not name, or one that it names does not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT / "molecule"), str(ROOT)]

from tests.mutation.runner import MODULES, run  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="Small errors in the code that judges, and whether a test sees them.")
    parser.add_argument("modules", nargs="*", default=list(MODULES), help=f"of {', '.join(MODULES)}")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="only every Nth error of each module")
    parser.add_argument("--show", action="store_true", help="print each error as it is tried")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.modules if name not in MODULES]
    if unknown:
        parser.error(f"not a module that is looked at: {', '.join(unknown)}")
    return run(arguments.modules, max(1, arguments.sample), arguments.show)


if __name__ == "__main__":
    raise SystemExit(main())
