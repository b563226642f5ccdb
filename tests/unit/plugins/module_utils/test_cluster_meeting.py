# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that meet before anything is started, over real sockets on addresses of lo: who is missing, unready or out of reach is named, nobody waits long."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import cluster_meeting
from ansible_collections.rackready.gpu.plugins.module_utils.cluster_meeting import Met, Party, Peer, meet

TOKEN = "0123456789abcdef"
PEERS = [Peer(f"h100-0{number}", f"127.0.0.{number}") for number in (1, 2, 3)]


@pytest.fixture
def port() -> int:
    """A port that is free on all addresses just now."""
    with socket.socket() as asked:
        asked.bind(("0.0.0.0", 0))
        return int(asked.getsockname()[1])


def party(node: int, port: int, **changes: Any) -> Party:
    return Party(PEERS, node, port, TOKEN, come_s=8.0)._replace(**changes)


def together(*parties: Party) -> list[Met]:
    async def all_of_them() -> list[Met]:
        return list(await asyncio.gather(*(cluster_meeting._meet(one) for one in parties)))

    return asyncio.run(all_of_them())


def test_all_come_and_all_go_on(port: int) -> None:
    assert together(*(party(node, port) for node in (2, 0, 1))) == [Met(None)] * 3


def test_the_port_is_free_again_at_once_for_torchrun(port: int) -> None:
    for _time in range(2):
        assert together(*(party(node, port) for node in range(3))) == [Met(None)] * 3
    with socket.socket() as asked:
        asked.bind((PEERS[0].address, port))


def test_two_hosts_that_meet_from_outside_of_a_loop(port: int) -> None:
    alone = Party(PEERS[:2], 1, port, TOKEN, come_s=0.6)
    assert meet(alone).own


def test_a_host_that_cannot_take_part_stops_all_and_tells_all_why(port: int) -> None:
    met = together(party(0, port), party(1, port, problem="gpu_idle: process 7 uses a GPU"), party(2, port))
    assert [one.problem for one in met] == ["h100-02: gpu_idle: process 7 uses a GPU"] * 3
    assert [one.own for one in met] == [False, True, False]


def test_so_does_the_first_one(port: int) -> None:
    met = together(party(0, port, problem="no engine"), party(1, port, problem="no driver"), party(2, port))
    assert {one.problem for one in met} == {"h100-01: no engine; h100-02: no driver"}
    assert [one.own for one in met] == [True, True, False]


def test_a_host_that_does_not_come_is_named_to_those_who_came(port: int) -> None:
    started = time.monotonic()
    met = together(party(0, port, come_s=1.0), party(1, port, come_s=1.0))
    assert [one.problem for one in met] == [f"h100-03 did not come to h100-01 at 127.0.0.1:{port} within 1 s"] * 2
    assert [one.own for one in met] == [False, False]
    assert time.monotonic() - started < 6


def test_where_nobody_listens_the_host_the_address_the_reason_and_a_remedy_are_said(port: int) -> None:
    met = meet(party(2, port, come_s=0.6))
    assert met.own
    assert met.problem is not None
    assert met.problem.startswith(f"h100-03 cannot reach h100-01 at 127.0.0.1:{port} (connection refused, for 0.6 s): open the ports between the hosts")
    assert "smoke_test_cluster_interface" in met.problem
    assert "smoke_test_cluster_port" in met.problem


def test_what_else_is_wrong_with_a_host_that_does_not_get_through_is_said_too(port: int) -> None:
    assert "besides, no engine" in str(meet(party(2, port, come_s=0.6, problem="no engine")).problem)


def test_an_address_that_is_not_this_host_s(port: int) -> None:
    peers = [Peer("h100-01", "192.0.2.1"), *PEERS[1:]]
    met = meet(Party(peers, 0, port, TOKEN))
    assert met.own
    assert str(met.problem).startswith("h100-01 cannot listen at its address 192.0.2.1 (")


def test_a_port_that_somebody_uses(port: int) -> None:
    with socket.socket() as other:
        other.bind((PEERS[0].address, port))
        other.listen()
        met = meet(party(0, port))
    assert met == Met(
        f"h100-01 cannot listen at 127.0.0.1:{port} (address already in use): end what uses the port, or set smoke_test_cluster_port to another one", True
    )


@pytest.fixture
def foreign(port: int) -> Iterator[int]:
    """A service of somebody else at the port."""

    async def serve() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, PEERS[0].address, port):
            await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    task = loop.create_task(serve())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.gather(task, return_exceptions=True)))
    thread.start()
    time.sleep(0.3)
    yield port
    loop.call_soon_threadsafe(task.cancel)
    thread.join()
    loop.close()


def test_somebody_else_at_the_port(foreign: int) -> None:
    met = meet(party(1, foreign))
    assert str(met.problem).startswith(f"h100-02 cannot reach h100-01 at 127.0.0.1:{foreign} any more (something else answers there)")


def test_two_hosts_that_do_not_reach_each_other_are_named_though_both_reach_the_first(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cluster_meeting._connect

    async def blocked(address: str, number: int) -> Any:
        if address == PEERS[2].address and asyncio.current_task() in second:
            raise ConnectionRefusedError(111, "Connection refused")
        return await real(address, number)

    second: set[Any] = set()
    reach = cluster_meeting._reach

    async def as_second(one: Party, node: int, number: int) -> Any:
        if one.node == 1:
            second.add(asyncio.current_task())
        return await reach(one, node, number)

    monkeypatch.setattr(cluster_meeting, "_connect", blocked)
    monkeypatch.setattr(cluster_meeting, "_reach", as_second)
    met = together(*(party(node, port) for node in range(3)))
    assert all(str(one.problem).startswith("h100-02 cannot reach h100-03 at 127.0.0.3:") for one in met), met
    assert all("(connection refused)" in str(one.problem) for one in met)
    assert [one.own for one in met] == [False, True, False]


def test_whoever_does_not_know_the_token_is_no_guest(port: int) -> None:
    met = together(party(0, port, come_s=1.5), party(1, port, token="another", come_s=1.5), party(2, port, come_s=1.5))
    assert "h100-02 did not come" in str(met[0].problem)
    assert met[1].problem is not None
    assert "h100-02 did not come" in str(met[2].problem)


@pytest.mark.parametrize("hello", [{"node": 0, "port": 7}, {"node": 3, "port": 7}, {"node": True, "port": 7}, {"node": 1, "port": "7"}, {"node": 1}])
def test_a_guest_that_is_none_of_the_others_does_not_count(port: int, hello: dict[str, Any]) -> None:
    async def odd() -> None:
        await asyncio.sleep(0.2)
        _reader, writer = await asyncio.open_connection(PEERS[0].address, port)
        writer.write(json.dumps({"token": TOKEN, **hello}).encode() + b"\n")
        await writer.drain()
        await asyncio.sleep(1.5)
        writer.close()

    async def both() -> Met:
        first, _none = await asyncio.gather(cluster_meeting._meet(party(0, port, come_s=1.0)), odd())
        return first

    assert str(asyncio.run(both()).problem).startswith("h100-02, h100-03 did not come")


def test_half_a_line_is_no_message(port: int) -> None:
    async def half() -> None:
        await asyncio.sleep(0.2)
        _reader, writer = await asyncio.open_connection(PEERS[0].address, port)
        writer.write(b'{"token": "' + TOKEN.encode() + b'", "node": 1, "po')
        await writer.drain()
        writer.close()

    async def both() -> Met:
        first, _none = await asyncio.gather(cluster_meeting._meet(party(0, port, come_s=1.0)), half())
        return first

    assert "h100-02, h100-03 did not come" in str(asyncio.run(both()).problem)


def test_a_guest_that_falls_silent_is_named(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_meeting, "ANSWER_S", 1.0)

    async def silent() -> None:
        await asyncio.sleep(0.2)
        _reader, writer = await asyncio.open_connection(PEERS[0].address, port)
        writer.write(json.dumps({"token": TOKEN, "node": 1, "port": port, "problem": None}).encode() + b"\n")
        await writer.drain()
        await asyncio.sleep(3)
        writer.close()

    async def all_three() -> list[Any]:
        return list(await asyncio.gather(*(cluster_meeting._meet(party(node, port)) for node in (0, 2)), silent()))

    first, third, _none = asyncio.run(all_three())
    assert "h100-01 cannot reach h100-02" in str(first.problem)
    assert first.own
    assert third.problem is not None
