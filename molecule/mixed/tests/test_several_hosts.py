"""playbooks/verify_cluster.yml over hosts of different distributions and with different numbers of GPUs, which the first run has provisioned and proved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lab.play import ROOT, Played, play
from testinfra import get_host
from testinfra.host import Host

PLAYBOOK = "playbooks/verify_cluster.yml"
# In the order of the inventory, which is that of the ranks; with the number of processes that a simulated host gets.
HOSTS = {"h100-01": 2, "h200-01": 1, "rocky-01": 1}
FAILED = 2


def on(name: str) -> Host:
    return get_host(f"ssh://{name}", ssh_config=str(ROOT / ".lab/ssh/config"))


def together() -> Played:
    return play(PLAYBOOK, limit=",".join(HOSTS))


@contextmanager
def blocked(name: str, source: str) -> Iterator[None]:
    """The host refuses connections that another one begins."""
    rule = f"INPUT --source {source} --protocol tcp --syn --jump REJECT --reject-with tcp-reset"
    on(name).check_output(f"iptables --insert {rule}")
    try:
        yield
    finally:
        on(name).check_output(f"iptables --delete {rule}")


@pytest.fixture(scope="module")
def sound() -> Played:
    return together()


@pytest.mark.parametrize("name", HOSTS)
def test_hosts_that_compute_together_are_simulated_and_keep_their_stamps(sound: Played, name: str) -> None:
    record = sound.record(name)
    assert (sound.status, record["outcome"]) == (0, "simulated"), sound.output
    cluster = record["cluster"]
    assert cluster["hosts"] == list(HOSTS)
    exact = [check for check in cluster["checks"] if check["name"] == "all_reduce_exact"]
    assert [(check["status"], check["value"]["world"]) for check in exact] == [("pass", sum(HOSTS.values()))] * HOSTS[name]
    [pairs] = [check for check in cluster["checks"] if check["name"] == "hosts_pairs"]
    assert (pairs["status"], pairs["value"]) == ("pass", {"wrong": {}, "right": 2, "of": 2})
    assert cluster["all_reduce"]["world"] == sum(HOSTS.values())
    assert (record["verdict"], record["changed"], record["stamp"]["verdict"]) == (None, [], "simulated")


@pytest.mark.parametrize("name", HOSTS)
def test_nothing_of_it_is_left_on_a_host(sound: Played, name: str) -> None:
    assert sound.status == 0
    assert on(name).check_output("docker ps --all --quiet") == ""
    assert on(name).check_output("ls /var/lib/rackready | grep -v -e lock -e stamp.json || true") == ""


def test_two_hosts_that_do_not_reach_each_other_are_named_and_nothing_is_started(sound: Played) -> None:
    assert sound.status == 0
    with blocked("h200-01", "172.30.86.23"):
        played = together()
    assert played.status == FAILED
    for name in HOSTS:
        record = played.record(name)
        assert record["outcome"] == "incomplete"
        assert "rocky-01 cannot reach h200-01 at 172.30.86.22:" in record["reason"]
        assert "(connection refused)" in record["reason"]
        assert record["cluster"]["container_started"] is False


def test_a_host_without_its_engine_is_refused_by_name(sound: Played) -> None:
    assert sound.status == 0
    engine = on("rocky-01")
    engine.check_output("systemctl stop docker.socket docker.service")
    try:
        played = together()
    finally:
        engine.check_output("systemctl start docker.service")
    assert played.status == FAILED
    assert {name: played.record(name)["outcome"] for name in HOSTS} == dict.fromkeys(HOSTS, "refused")
    assert "rocky-01 is not as planned: run site.yml -l rocky-01 first." in played.record("rocky-01")["reason"]
    assert played.record("h100-01")["reason"].startswith("nothing was started, because rocky-01 cannot take part: ")
