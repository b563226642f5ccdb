# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sub-commands with a limit that holds even when the command cannot be killed.

A child that waits in the kernel (a wedged GPU driver does that to nvidia-smi) does not die of SIGKILL until the kernel lets go, so nothing here ever waits for
a child without a deadline. Output goes to memory files, not pipes: there is nothing to drain, and a grandchild that keeps its end open blocks nobody.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OUTPUT_LIMIT = 16 * 1024 * 1024
KILL_GRACE_S = 0.3


class Result:
    """How a command ended. ``rc`` is None when it was given up; ``seconds`` is the time from its start."""

    def __init__(self, rc: int | None, stdout: bytes, stderr: bytes, seconds: float, problem: str | None = None) -> None:
        self.rc = rc
        self.stdout = stdout
        self.stderr = stderr
        self.seconds = seconds
        self.problem = problem
        """Why it was given up, in words; None: it ended by itself."""

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    def complaint(self, name: str) -> str | None:
        """What went wrong, in the command's own words (at most 500 characters); None when it exited with 0."""
        if self.problem is not None:
            return f"{name} {self.problem}"
        if self.rc == 0:
            return None
        words = " ".join((self.stderr + b" " + self.stdout[-2000:]).decode("utf-8", "replace").split())
        return f"{name} exited {self.rc}: {words[:500] or 'it said nothing'}"


class Child:
    """A started command. ``finish`` must be called once; it returns at the latest ``timeout`` seconds after the start plus a short grace."""

    def __init__(self, argv: list[str], timeout: float, env: dict[str, str] | None = None) -> None:
        self._timeout = timeout
        self._started = time.monotonic()
        self._files = [os.memfd_create(name) for name in ("stdout", "stderr")]
        self._error: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            # Not run_command, which waits for a child that cannot be killed.
            self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self._files[0],
                stderr=self._files[1],
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C", **(env or {})},
            )
        except OSError as error:
            self._error = error

    @property
    def pid(self) -> int | None:
        """Process id, which is also the id of its process group."""
        return self._process.pid if self._process else None

    @property
    def over(self) -> bool:
        """Whether ``finish`` would return at once: it has ended, or its limit is over."""
        return self._process is None or self._process.poll() is not None or time.monotonic() - self._started > self._timeout

    def give_up(self) -> None:
        """In place of ``finish``, for one whose answer is not needed any more."""
        self._timeout = 0.0
        self.finish()

    def finish(self) -> Result:
        """Wait for the end or the limit, whichever comes first, and give what was written until then."""
        problem = f"could not be started: {self._error}" if self._process is None else self._wait(self._process)
        seconds = time.monotonic() - self._started
        stdout, stderr = (self._take(descriptor) for descriptor in self._files)
        rc = self._process.poll() if self._process and problem is None else None
        return Result(rc, stdout, stderr, round(seconds, 3), problem)

    def _wait(self, process: subprocess.Popen[bytes]) -> str | None:
        pause = 0.001
        while process.poll() is None:
            if time.monotonic() - self._started > self._timeout:
                return f"did not end within {self._timeout:g} s and was given up{self._kill(process)}"
            if any(os.fstat(descriptor).st_size > OUTPUT_LIMIT for descriptor in self._files):
                return f"wrote more than {OUTPUT_LIMIT // 1024 // 1024} MiB and was given up{self._kill(process)}"
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return None

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> str:
        """End the process group; say so when the child does not go. It is left alone then: joining it would hang as it does."""
        with suppress(OSError):  # it ended in the meantime
            os.killpg(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + KILL_GRACE_S
        while process.poll() is None:
            if time.monotonic() > deadline:
                return f" (process {process.pid} cannot be killed: it waits in the kernel)"
            time.sleep(0.01)
        return ""

    @staticmethod
    def _take(descriptor: int) -> bytes:
        data = os.pread(descriptor, OUTPUT_LIMIT, 0)
        os.close(descriptor)
        return data


def read_apart(path: Path, limit_bytes: int, timeout: float, find: Callable[[str], str | None] | None = None) -> bytes | None:
    """The first ``limit_bytes`` of a file whose reading may block for ever in the kernel, read by a child. None: no answer within ``timeout`` seconds.

    Empty where it cannot be read, as that of a process that is gone.
    """
    head = (find or Commands().find)("head")
    if head is None:
        return None
    result = Child([head, "-c", str(limit_bytes), str(path)], timeout).finish()
    return None if result.problem else result.stdout


class Commands:
    """Finds and starts commands. Tests give their own object with the same two methods."""

    def find(self, name: str) -> str | None:
        """Absolute path of an executable, or None. A login over SSH may lack the sbin directories, so they are always searched."""
        for folder in f"{os.environ.get('PATH', '')}:{SEARCH_PATH}".split(":"):
            candidate = Path(folder, name)
            if folder.startswith("/") and candidate.is_file() and os.access(str(candidate), os.X_OK):
                return str(candidate)
        return None

    def start(self, argv: list[str], timeout: float, env: dict[str, str] | None = None) -> Child:
        """Start ``argv`` with a limit of ``timeout`` seconds. A command that cannot be started shows in the result."""
        return Child(argv, timeout, env)
