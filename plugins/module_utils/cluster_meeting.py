# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts meet before anything is started on them: who cannot take part or cannot be reached is named, in place of a collective that hangs.

The first host listens where torchrun will. The others come and say whether they are ready and at which port of their own they can be reached; then everybody
connects to everybody, since NCCL and gloo do so as well, at ports that the kernel chooses. Only if all of that works all are told to go on.
Every message is one line of JSON, and every wait has a limit.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Mapping, NamedTuple, Sequence, Tuple

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import integer

# Seconds within which all hosts have to come: Ansible starts them one after the other.
COME_S = 90.0
# Seconds that an answer may take after that, that one connection may take, and between two tries.
ANSWER_S = 30.0
CONNECT_S = 5.0
PAUSE_S = 0.5
# How long the first host lets the others hang up.
GONE_S = 2.0
LINE_MAX = 1 << 20

Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Peer(NamedTuple):
    """A host of the run: its name in the inventory and its address in the network of the cluster."""

    name: str
    address: str


class Party(NamedTuple):
    """The meeting as one host sees it. ``node``: its number among ``peers``; ``token``: the same on all hosts of the run; ``problem``: why it cannot take part;
    ``come_s``: seconds within which all have to come.
    """

    peers: Sequence[Peer]
    node: int
    port: int
    token: str
    problem: str | None = None
    come_s: float = COME_S

    @property
    def me(self) -> Peer:
        return self.peers[self.node]

    @property
    def first(self) -> Peer:
        return self.peers[0]


class Met(NamedTuple):
    """``problem``: why this host does not go on, one sentence or several; None: all go on. ``own``: whether it is about this host itself or its own ways."""

    problem: str | None
    own: bool = False


class _Unreachable(Exception):
    """Another host cannot be reached; the words say why."""


def meet(party: Party) -> Met:
    """Meet the others, within ``come_s`` and twice ANSWER_S seconds."""
    return asyncio.run(_meet(party))


async def _meet(party: Party) -> Met:
    try:
        probe = await asyncio.start_server(_answer(party), party.me.address, 0)
    except OSError as error:
        return Met(f"{party.me.name} cannot listen at its address {party.me.address} ({_words(error)})", True)
    async with probe:
        port = probe.sockets[0].getsockname()[1]
        return await (_host(party, port) if party.node == 0 else _visit(party, port))


# --- lines --------------------------------------------------------------------------------------------------------------------------------


async def _say(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await asyncio.wait_for(writer.drain(), ANSWER_S)


async def _hear(reader: asyncio.StreamReader, party: Party, seconds: float) -> dict[str, Any]:
    """The next message of this run. _Unreachable where none comes, or one of somebody else."""
    try:
        line = await asyncio.wait_for(reader.readline(), seconds)
    except asyncio.TimeoutError:
        raise _Unreachable(f"no answer within {seconds:g} s") from None
    except (OSError, ValueError) as error:
        raise _Unreachable(_words(error)) from None
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict) or message.get("token") != party.token:
        raise _Unreachable("the connection was closed" if not line else "something else answers there")
    return message


def _words(error: BaseException) -> str:
    """An error of the network in words: ``Connection refused``, not the call that it came from."""
    if isinstance(error, asyncio.TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    number = getattr(error, "errno", None)
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    known = {111: "connection refused", 113: "no route to host", 101: "network is unreachable", 98: "address already in use", 104: "connection reset"}
    return known.get(number or 0, text)


async def _connect(address: str, port: int) -> Streams:
    return await asyncio.wait_for(asyncio.open_connection(address, port, limit=LINE_MAX), CONNECT_S)


def _close(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, RuntimeError):
        writer.close()


# --- everybody to everybody ----------------------------------------------------------------------------------------------------------------


def _answer(party: Party) -> Any:
    """Who connects and knows the token is told that it reached the right host."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(_Unreachable, OSError, asyncio.TimeoutError):
            await _hear(reader, party, CONNECT_S)
            await _say(writer, {"token": party.token, "node": party.node})
        _close(writer)

    return answer


async def _reach(party: Party, node: int, port: int) -> str | None:
    """None, or why another host is not reached at its own port."""
    peer = party.peers[node]
    writer = None
    try:
        reader, writer = await _connect(peer.address, port)
        await _say(writer, {"token": party.token})
        message = await _hear(reader, party, CONNECT_S)
        why = None if message.get("node") == node else f"it is node {message.get('node')!r} that answers there"
    except (_Unreachable, OSError, asyncio.TimeoutError) as error:
        why = str(error) if isinstance(error, _Unreachable) else _words(error)
    finally:
        if writer:
            _close(writer)
    return f"{party.me.name} cannot reach {peer.name} at {peer.address}:{port} ({why})" if why else None


async def _reach_all(party: Party, ports: Mapping[int, int]) -> list[str]:
    said = await asyncio.gather(*(_reach(party, node, port) for node, port in sorted(ports.items()) if node != party.node))
    return [words for words in said if words]


# --- the first host --------------------------------------------------------------------------------------------------------------------------


class _Guest(NamedTuple):
    """A host that has come."""

    streams: Streams
    hello: Mapping[str, Any]


async def _host(party: Party, own_port: int) -> Met:
    guests: dict[int, _Guest] = {}
    complete = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = await _hear(reader, party, CONNECT_S)
        except _Unreachable:
            _close(writer)
            return
        node = integer(hello.get("node"))
        if node is not None and integer(hello.get("port")) is not None and 0 < node < len(party.peers):
            guests[node] = _Guest((reader, writer), hello)
            if len(guests) == len(party.peers) - 1:
                complete.set()

    try:
        door = await asyncio.start_server(greet, party.first.address, party.port, limit=LINE_MAX)
    except OSError as error:
        words = f"{party.first.name} cannot listen at {party.first.address}:{party.port} ({_words(error)})"
        return Met(f"{words}: end what uses the port, or set smoke_test_cluster_port to another one", True)
    async with door:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(complete.wait(), party.come_s)
        try:
            met = await _decide(party, guests, own_port)
            # Whoever closes first keeps the port busy for a while, and torchrun wants it now.
            await asyncio.gather(*(_gone(guest) for guest in guests.values()))
        finally:
            for guest in guests.values():
                _close(guest.streams[1])
    return met


async def _gone(guest: _Guest) -> None:
    with suppress(OSError, asyncio.TimeoutError):
        await asyncio.wait_for(guest.streams[0].read(), GONE_S)


async def _decide(party: Party, guests: Mapping[int, _Guest], own_port: int) -> Met:
    """Who is missing or not ready; else whether all reach all. Everybody who has come is told."""
    missing = [peer.name for node, peer in enumerate(party.peers) if node and node not in guests]
    unready = [f"{party.me.name}: {party.problem}"] if party.problem else []
    unready += [f"{party.peers[node].name}: {guest.hello['problem']}" for node, guest in sorted(guests.items()) if guest.hello.get("problem")]
    stop = "; ".join(unready)
    if missing:
        where = f"{party.first.name} at {party.first.address}:{party.port}"
        stop = "; ".join([*unready, f"{', '.join(missing)} did not come to {where} within {party.come_s:g} s"])
    if stop:
        await _tell_all(party, guests, {"stop": stop})
        return Met(stop, bool(party.problem))
    ports = {0: own_port, **{node: int(guest.hello["port"]) for node, guest in guests.items()}}
    await _tell_all(party, guests, {"ports": [[node, port] for node, port in ports.items()]})
    mine, *others = await asyncio.gather(_reach_all(party, ports), *(_report(party, node, guest) for node, guest in sorted(guests.items())))
    problems = [*mine, *(words for report in others for words in report)]
    await _tell_all(party, guests, {"stop": "; ".join(problems) or None})
    return Met("; ".join(mine or problems) or None, bool(mine))


async def _report(party: Party, node: int, guest: _Guest) -> list[str]:
    """Which hosts another one cannot reach."""
    try:
        message = await _hear(guest.streams[0], party, ANSWER_S)
    except _Unreachable as error:
        return [f"{party.peers[node].name} came and then said no more ({error})"]
    return [str(words) for words in message.get("cannot", [])]


async def _tell_all(party: Party, guests: Mapping[int, _Guest], message: Mapping[str, Any]) -> None:
    for guest in guests.values():
        with suppress(OSError, asyncio.TimeoutError):
            await _say(guest.streams[1], {"token": party.token, **message})


# --- the other hosts -------------------------------------------------------------------------------------------------------------------------


async def _visit(party: Party, own_port: int) -> Met:
    where = f"{party.me.name} cannot reach {party.first.name} at {party.first.address}:{party.port}"
    remedy = "open the ports between the hosts' addresses, or set smoke_test_cluster_interface or smoke_test_cluster_port, where they are the wrong ones"
    try:
        reader, writer = await _come(party)
    except _Unreachable as error:
        own = f"; besides, {party.problem}" if party.problem else ""
        return Met(f"{where} ({error}): {remedy}{own}", True)
    try:
        return await _talk(party, own_port, reader, writer)
    except (_Unreachable, OSError, asyncio.TimeoutError) as error:
        words = str(error) if isinstance(error, _Unreachable) else _words(error)
        return Met(f"{where} any more ({words}): see what it says itself", False)
    finally:
        _close(writer)


async def _come(party: Party) -> Streams:
    """A connection to the first host, which may not be there yet."""
    loop = asyncio.get_running_loop()
    until = loop.time() + party.come_s
    while True:
        try:
            return await _connect(party.first.address, party.port)
        except (OSError, asyncio.TimeoutError) as error:
            if loop.time() + PAUSE_S >= until:
                raise _Unreachable(f"{_words(error)}, for {party.come_s:g} s") from None
        await asyncio.sleep(PAUSE_S)


async def _talk(party: Party, own_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Met:
    await _say(writer, {"token": party.token, "node": party.node, "port": own_port, "problem": party.problem})
    answer = await _hear(reader, party, party.come_s + ANSWER_S)
    if "ports" not in answer:
        return Met(str(answer.get("stop")), bool(party.problem))
    mine = await _reach_all(party, {int(node): int(port) for node, port in answer["ports"]})
    await _say(writer, {"token": party.token, "cannot": mine})
    answer = await _hear(reader, party, ANSWER_S + CONNECT_S)
    stop = "; ".join(mine) or answer.get("stop")
    return Met(str(stop) if stop else None, bool(mine))
