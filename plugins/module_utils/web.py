# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP through Ansible's urls, with a limit for the whole answer and errors in words."""

from __future__ import annotations

import http.client
import ssl
import time
from typing import Any, Mapping
from urllib.error import HTTPError, URLError

from ansible.module_utils.urls import ConnectionError as AnsibleConnectionError
from ansible.module_utils.urls import open_url
from ansible_collections.rackready.gpu.plugins.module_utils.registry import AskError, Response
from ansible_collections.rackready.gpu.plugins.module_utils.repository import FetchError

CHUNK = 1 << 20


class Web:
    """Reads URLs. ``timeout`` is how long one silence may last; a whole answer may take ten times that."""

    def __init__(self, timeout: float, ca_path: str | None = None) -> None:
        self._timeout = timeout
        self._ca_path = ca_path

    def fetch(self, url: str) -> bytes:
        """The body of an URL; raises FetchError, also for every status but 200."""
        try:
            response = self.ask(url, {})
        except AskError as error:
            raise FetchError(str(error)) from error
        if response.status != 200:
            raise FetchError(f"HTTP status {response.status}")
        return response.body

    def ask(self, url: str, headers: Mapping[str, str]) -> Response:
        """The answer of an URL, whatever its status; raises AskError when there is none."""
        end = time.monotonic() + 10 * self._timeout
        try:
            try:
                answer = open_url(url, headers=dict(headers), timeout=self._timeout, ca_path=self._ca_path, http_agent="rackready", follow_redirects="safe")
            except HTTPError as error:
                answer = error
            return Response(int(answer.code), {name.lower(): value for name, value in answer.headers.items()}, self._read(answer, end))
        except (AnsibleConnectionError, URLError, http.client.HTTPException, ssl.SSLError, OSError, ValueError) as error:
            raise AskError(_words(error)) from error

    def _read(self, answer: Any, end: float) -> bytes:
        parts: list[bytes] = []
        while True:
            part = answer.read(CHUNK)
            if not part:
                return b"".join(parts)
            parts.append(part)
            if time.monotonic() > end:
                raise AskError(f"the answer was not complete after {10 * self._timeout:.0f} s")


def _words(error: BaseException) -> str:
    """What happened: the cause that urllib wrapped, rather than the wrapper."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return _words(reason)
    return str(error) or type(error).__name__
