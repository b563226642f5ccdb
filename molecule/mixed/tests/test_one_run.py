"""One run over hosts that differ: each gets its own outcome and record, none stops another, and the exit status tells."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from lab.play import ROOT, Played, play
from testinfra import get_host
from testinfra.host import Host

# Host -> its GPUs.
FIT = {"h100-01": 8, "a100-01": 8, "h200-01": 1, "rocky-01": 1}
# Host -> outcome and words of the reason.
UNFIT = {
    "cpu-01": ("refused", "There is no NVIDIA GPU on the PCI bus"),
    "old-01": ("refused", "Debian GNU/Linux 11 (bullseye) (debian-11) is not a supported distribution"),
    "gone-01": ("unreachable", "172.30.86.33"),
}
# ansible-playbook's own: 4 where a host was unreachable, whatever happened to the others; 2 where one failed.
UNREACHABLE, FAILED = 4, 2


@pytest.fixture(scope="module")
def first() -> Played:
    """The first run over all hosts, bare until then."""
    return play("site.yml", limit="all")


@pytest.mark.parametrize("host", FIT)
def test_a_host_that_can_be_provisioned_is_whatever_happens_to_the_others(first: Played, host: str) -> None:
    record = first.record(host)
    assert record["outcome"] == "simulated", record["reason"]
    assert len({check["gpu"]["uuid"] for check in record["checks"] if check["gpu"]}) == FIT[host]


@pytest.mark.parametrize("host", UNFIT)
def test_a_host_that_cannot_is_recorded_with_its_reason_and_what_to_do(first: Played, host: str) -> None:
    outcome, words = UNFIT[host]
    record = first.record(host)
    assert record["outcome"] == outcome
    assert words in record["reason"]
    assert f"-l {host}" in record["remedy"]
    assert record["changed"] == []


def test_the_exit_status_tells(first: Played) -> None:
    assert first.status == UNREACHABLE, first.output
    assert play("site.yml", limit="cpu-01,old-01").status == FAILED


def test_the_last_lines_are_one_for_each_host(first: Played) -> None:
    lines = first.output.rstrip().splitlines()[-len(FIT) - len(UNFIT) :]
    assert [line.split()[:2] for line in lines] == sorted([*([host, "simulated"] for host in FIT), *([host, UNFIT[host][0]] for host in UNFIT)])


def test_the_report_has_every_host_of_the_run(first: Played) -> None:
    report = subprocess.run(["rackready", "report", "--records", str(first.records)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert report.returncode != 0, "a host that is not accepted must not end a pipeline well"
    for host in (*FIT, *UNFIT):
        assert host in report.stdout


class TestA100OnDebian12:
    """Its engine is too old for CDI, and its GPUs do not say whether they have joined the fabric."""

    def test_docker_comes_from_docker_s_repository(self, first: Played, host: Host) -> None:
        docker = first.record("a100-01")["plan"]["areas"]["docker"]
        assert docker["desired"]["source"] == "docker"
        assert any("ships Docker 20.10.24, older than 26.1" in reason["rule"] for reason in docker["reasons"])
        assert host.package("docker-ce").is_installed
        assert not host.package("docker.io").is_installed
        source = host.file("/etc/apt/sources.list.d/rackready-docker-ce.sources").content_string
        assert "Suites: bookworm" in source
        assert "BEGIN PGP PUBLIC KEY BLOCK" in source
        assert json.loads(host.check_output("docker info --format '{{json .CDISpecDirs}}'")), "the engine reads CDI specifications"

    def test_the_fabric_is_proven_by_unit_and_version(self, first: Played, host: Host) -> None:
        checks = [check for check in first.record("a100-01")["checks"] if check["name"] == "fabric"]
        assert [check["status"] for check in checks] == ["pass"] * 8
        assert {check["required"] for check in checks} == {True}
        assert {json.dumps(check["value"], sort_keys=True) for check in checks} == {
            '{"active": "active", "driver": "580.178.04", "versions": ["580.178.04"]}',
        }
        assert host.service("nvidia-fabricmanager").is_running
        assert "<state>N/A</state>" in host.check_output("nvidia-smi -q -x"), "these GPUs report no state, so it cannot have been asked for"

    def test_a_fabric_manager_that_stopped_is_found(self, host: Host) -> None:
        host.check_output("systemctl stop nvidia-fabricmanager")
        try:
            played = play("playbooks/verify.yml", limit="a100-01")
        finally:
            host.check_output("systemctl start nvidia-fabricmanager")
        assert played.status != 0
        assert "nvidia-fabricmanager" in played.record("a100-01")["reason"]


class TestH200OnUbuntu:
    """A single card without a fabric, on a distribution whose packages have other names."""

    def test_the_driver_has_ubuntu_s_names_and_is_held(self, first: Played) -> None:
        driver = first.record("h200-01")["plan"]["areas"]["nvidia_driver"]["desired"]
        assert "nvidia-open-580=580.178.04-0ubuntu1" in driver["install"]
        on_host = get_host("ssh://h200-01", ssh_config=str(ROOT / ".lab/ssh/config"))
        assert on_host.package("nvidia-open-580").version == "580.178.04-0ubuntu1"
        assert {"nvidia-open-580", "libnvidia-compute-580"} <= set(on_host.check_output("apt-mark showhold").split())

    def test_there_is_no_fabric_and_the_record_says_that_this_was_known_beforehand(self, first: Played) -> None:
        assert [check["status"] for check in first.record("h200-01")["checks"] if check["name"] == "fabric"] == ["not_applicable"]


class TestH200OnRocky:
    """The same card on a distribution of EL's family: dnf, rpms, a module stream, and services that no package starts."""

    @pytest.fixture(scope="class")
    def rocky(self, first: Played) -> Host:
        assert first.record("rocky-01")["outcome"] == "simulated"
        return get_host("ssh://rocky-01", ssh_config=str(ROOT / ".lab/ssh/config"))

    def test_exactly_what_was_planned_is_in_the_database_of_rpms(self, first: Played, rocky: Host) -> None:
        areas = first.record("rocky-01")["plan"]["areas"]
        packages = set(rocky.check_output("rpm -qa --queryformat '%{NAME}-%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\n'").split())
        assert {"nvidia-driver-cuda-3:580.178.04-1.el9", "kmod-nvidia-open-dkms-3:580.178.04-1.el9"} <= set(areas["nvidia_driver"]["desired"]["install"])
        for area in ("nvidia_driver", "docker", "nvidia_container_toolkit"):
            assert {each for each in areas[area]["desired"]["install"] if re.search(r"-[0-9:.]+-", each) and " = " not in each} <= packages
        assert {"nvidia-container-toolkit-1.20.0-1", "libnvidia-container1-1.20.0-1", "nvidia-persistenced-3:580.178.04-1.el9"} <= packages
        assert rocky.run("rpm --verify nvidia-driver-cuda kmod-nvidia-open-dkms docker-ce nvidia-container-toolkit-base").rc == 0

    def test_the_stream_of_the_branch_and_flavour_is_enabled(self, rocky: Host) -> None:
        assert {"stream=580-open", "state=enabled"} <= set(rocky.file("/etc/dnf/modules.d/nvidia-driver.module").content_string.split())

    @pytest.mark.parametrize(
        ("name", "packages", "metadata"), [("nvidia-cuda", "1", "0"), ("docker-ce", "1", "0"), ("epel", "1", "0"), ("nvidia-container-toolkit", "0", "1")]
    )
    def test_what_the_vendor_signs_is_what_is_checked(self, rocky: Host, name: str, packages: str, metadata: str) -> None:
        lines = rocky.file(f"/etc/yum.repos.d/rackready-{name}.repo").content_string.split()
        assert {f"gpgcheck={packages}", f"repo_gpgcheck={metadata}"} <= set(lines)

    def test_an_upgrade_of_the_whole_host_leaves_the_driver_alone(self, rocky: Host) -> None:
        """Also where modules do not hide the newer branch from dnf; without the locks it would come."""
        upgrade = "dnf --assumeno --setopt=rackready-nvidia-cuda.module_hotfixes=1 upgrade"
        assert "nvidia" not in rocky.run(upgrade).stdout
        assert "595.91.07" in rocky.run(f"{upgrade} --disableplugin=versionlock").stdout

    def test_what_builds_the_modules_did_not_bring_another_kernel(self, rocky: Host) -> None:
        """dkms asks for headers that match a kernel, and dnf would take those of the newest one, with that kernel."""
        assert "Version" in rocky.run("dnf info --available kernel-core").stdout, "there is a newer one to be had"
        for name in ("kernel-core", "kernel-devel"):
            assert len(rocky.check_output(f"rpm --query {name}").splitlines()) == 1
        assert rocky.file(f"/lib/modules/{rocky.check_output('uname -r')}/extra/nvidia.ko").exists

    def test_services_run_that_the_packages_left_alone(self, rocky: Host) -> None:
        for unit in ("nvidia-persistenced.service", "docker.service", "nvidia-cdi-refresh.path"):
            assert rocky.service(unit).is_enabled, unit
            assert rocky.service(unit).is_running, unit

    def test_it_is_known_by_what_it_says_and_not_by_its_root(self, first: Played, rocky: Host) -> None:
        assert first.record("rocky-01")["plan"]["areas"]["docker"]["desired"]["manager"] == "dnf"
        assert 'ID="rocky"' in rocky.file("/etc/os-release").content_string
        assert not rocky.exists("apt-get")


def test_a_second_run_over_the_good_hosts_changes_nothing_and_ends_well(first: Played) -> None:
    assert {first.record(host)["outcome"] for host in FIT} == {"simulated"}
    played = play("site.yml", limit=",".join(FIT))
    assert played.status == 0, played.output
    assert [played.record(host)["changed"] for host in FIT] == [[]] * len(FIT)
