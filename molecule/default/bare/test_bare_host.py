"""Before anything was installed: the whole plan is shown, and every bad input is one sentence, a record, and no change."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.play import ROOT, Played, lab, play
from testinfra.host import Host

HOST = "h100-01"
LOCK = ROOT / "inventory/lab/group_vars/all/rackready_images.yml"
SERVICES = "172.30.86.2"


def fingerprint(host: Host) -> str:
    """Everything that a run could have changed: installed packages, and content and mode of the files under /etc and /var/lib/rackready."""
    packages: str = host.check_output("dpkg-query -W")
    files: str = host.check_output("find /etc /var/lib/rackready -type f -printf '%p %m ' -exec sha256sum {} + 2>/dev/null | sort; true")
    return packages + files


@pytest.fixture(autouse=True)
def nothing_changes(host: Host) -> Iterator[None]:
    before = fingerprint(host)
    yield
    assert fingerprint(host) == before


def refused(played: Played, *words: str) -> dict[str, Any]:
    """The run failed, and its record says refused, with one sentence that holds the words."""
    assert played.status != 0, played.output
    record = played.record(HOST)
    assert record["outcome"] == "refused", record["reason"]
    assert record["changed"] == []
    for word in words:
        assert word in record["reason"], record["reason"]
        assert word in " ".join(played.output.split()), played.output
    assert HOST in played.output
    return record


def test_check_mode_shows_the_whole_plan_and_exits_0() -> None:
    played = play("site.yml", "--check", "--diff")
    assert played.status == 0, played.output
    for words in ("nvidia-driver-cuda=580.178.04-1", "nvidia-fabricmanager=580.178.04-1", "daemon.json", "nvidia-container-toolkit=", "pull ", "smoke test"):
        assert words in played.output, words
    record = played.record(HOST)
    assert record["outcome"] == "planned"
    assert not record["plan"]["converged"]
    # Without a driver nobody knows this, and the plan says so instead of guessing.
    assert record["plan"]["areas"]["mig"]["actual"] == "unknown"


def test_plan_yml_shows_the_plan_and_exits_0() -> None:
    played = play("playbooks/plan.yml")
    assert played.status == 0, played.output
    assert "8 x H100 SXM5 80GB, 4 NVSwitches" in played.output
    assert played.record(HOST)["outcome"] == "planned"


@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["run", "check"])
class TestBadInput:
    def test_fewer_gpus_than_bought(self, arguments: tuple[str, ...]) -> None:
        played = play("site.yml", *arguments, variables={"gpu_expected": {"model": "h100-sxm5-80gb", "count": 9}})
        refused(played, "8 of 9 H100 SXM5 80GB are on the PCI bus", "gpu_expected.count")

    def test_another_model_than_bought(self, arguments: tuple[str, ...]) -> None:
        played = play("site.yml", *arguments, variables={"gpu_expected": {"model": "h200-sxm-141gb", "count": 8}})
        refused(played, "gpu_expected says 8 x H200 SXM 141GB", "H100 SXM5 80GB at 0000:1a:00.0")

    def test_a_misspelt_variable(self, arguments: tuple[str, ...]) -> None:
        refused(play("site.yml", *arguments, variables={"nvidia_driver_brnch": "580"}), "nvidia_driver_brnch", "nvidia_driver_branch")

    def test_a_value_that_does_not_exist(self, arguments: tuple[str, ...]) -> None:
        refused(play("site.yml", *arguments, variables={"smoke_test_backend": "gpu"}), "smoke_test_backend", "cuda", "cpu")

    def test_an_unknown_release(self, arguments: tuple[str, ...]) -> None:
        refused(play("site.yml", *arguments, variables={"gpu_stack_release": "2099.01-never"}), "2099.01-never", "2026.11-longterm")

    def test_an_image_that_is_not_locked(self, arguments: tuple[str, ...]) -> None:
        refused(play("site.yml", *arguments, variables={"pytorch_image_ref": f"{SERVICES}:5000/rackready-lab/pytorch:other"}), "not in the lock", "pin.yml")

    def test_a_digest_that_is_not_the_locked_one(self, arguments: tuple[str, ...]) -> None:
        reference = f"{SERVICES}:5000/rackready-lab/pytorch:2.13.0-cpu@sha256:{'0' * 64}"
        refused(play("site.yml", *arguments, variables={"pytorch_image_ref": reference}), "0" * 64, "the lock has")

    def test_a_digest_that_the_registry_does_not_have(self, arguments: tuple[str, ...]) -> None:
        lock = yaml.safe_load(LOCK.read_text())["rackready_lock"]
        for image in lock["images"].values():
            image["index"] = "sha256:" + "f" * 64
        refused(play("site.yml", *arguments, variables={"rackready_lock": lock}), "f" * 64, f"{SERVICES}:5000")

    def test_a_package_version_that_the_repository_does_not_have(self, arguments: tuple[str, ...]) -> None:
        lock = yaml.safe_load(LOCK.read_text())["rackready_lock"]
        gone = copy.deepcopy(lock)
        for repository in gone["repositories"].values():
            for name, versions in repository["packages"].items():
                repository["packages"][name] = [version.replace("580.178.04", "580.199.99") for version in versions]
        refused(play("site.yml", *arguments, variables={"rackready_lock": gone}), "580.199.99", "nvidia-driver-cuda")

    def test_a_layout_that_the_cards_cannot_hold(self, arguments: tuple[str, ...]) -> None:
        layout = [{"gpus": "all", "instances": {"3g.40gb": 2, "1g.10gb": 1}}]
        record = refused(
            play("site.yml", *arguments, variables={"mig_layout": layout}), "2 x 3g.40gb, 1 x 1g.10gb do not fit on H100 SXM5 80GB", "ask for less"
        )
        assert record["reason"].count("do not fit") == 1, "one sentence for all eight cards"

    def test_a_layout_with_an_unknown_profile(self, arguments: tuple[str, ...]) -> None:
        layout = [{"gpus": [0], "instances": {"1g.5gb": 7}}]
        refused(play("site.yml", *arguments, variables={"mig_layout": layout}), "has no MIG profile 1g.5gb")

    def test_a_layout_of_a_gpu_that_is_not_there(self, arguments: tuple[str, ...]) -> None:
        layout = [{"gpus": [0], "instances": {"1g.10gb": 7}}, {"gpus": [8], "instances": {"1g.10gb": 7}}]
        refused(play("site.yml", *arguments, variables={"mig_layout": layout}), "names the GPU 8, which this host does not have")

    def test_values_of_the_wrong_kind_are_all_told_at_once(self, arguments: tuple[str, ...]) -> None:
        wrong = {
            "gpu_expected": {"model": "h100-sxm5-80gb", "count": -1},
            "mig_layout": False,
            "nvidia_container_toolkit_version": 1.20,
            "nvidia_driver_reboot_ok": "yes",
            "pytorch_image_ref": "",
            "smoke_test_env": {"A": "{{ nobody.defined.this }}"},
            "MIG_LAYOUT": "off",
        }
        record = refused(
            play("site.yml", *arguments, variables=wrong),
            "smoke_test_env cannot be used ('nobody' is undefined)",
        )
        assert record["plan"]["areas"] == {}
        del wrong["smoke_test_env"]
        refused(
            play("site.yml", *arguments, variables=wrong),
            "gpu_expected.count is -1, but must be 1 or more.",
            'mig_layout is false, but must be "off" (in quotes, or YAML reads it as false)',
            "nvidia_container_toolkit_version is the number 1.2, but must be text: write it in quotes",
            'nvidia_driver_reboot_ok is "yes", but must be true or false.',
            'pytorch_image_ref is "", but does not look like a full image reference',
            "MIG_LAYOUT is not a variable of rackready, so it would have no effect; did you mean mig_layout?",
        )

    def test_two_groups_that_name_two_releases(self, arguments: tuple[str, ...], tmp_path: Path) -> None:
        second = inventory(tmp_path, groups={"canary": {"gpu_stack_release": "2026.11-newest"}})
        played = play("site.yml", "-i", second, *arguments)
        refused(played, '"2026.11-longterm" in the group lab_hosts', '"2026.11-newest" in the group canary', f"set it in host_vars/{HOST}.yml")

    def test_a_host_without_python(self, arguments: tuple[str, ...]) -> None:
        played = play("site.yml", *arguments, variables={"ansible_python_interpreter": "/usr/bin/python3.0"})
        refused(played, "There is no Python at /usr/bin/python3.0 on the host")

    def test_a_host_where_ansible_cannot_make_its_directory(self, arguments: tuple[str, ...]) -> None:
        played = play("site.yml", *arguments, variables={"ansible_pipelining": False, "ansible_remote_tmp": "/proc/none"})
        refused(played, "Ansible cannot make its directory /proc/none on the host")


def inventory(directory: Path, groups: dict[str, Any] | None = None, lock: str | None = None) -> str:
    """A second inventory beside the lab's, about the same host: with more groups (name to variables), or with a lock file of its own."""
    children = {name: {"hosts": {HOST: None}, "vars": variables} for name, variables in (groups or {}).items()}
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {HOST: None}, "children": children}}), encoding="utf-8")
    if lock is not None:
        (directory / "group_vars" / "all").mkdir(parents=True)
        (directory / "group_vars" / "all" / LOCK.name).write_text(lock, encoding="utf-8")
    return str(directory / "hosts.yml")


class TestBrokenLock:
    """What accidents and merges make of the lock file. It is the one of a second inventory, so that the lab's own stays whole."""

    @pytest.mark.parametrize("command", [("site.yml",), ("site.yml", "--check"), ("playbooks/plan.yml",), ("playbooks/verify.yml",)], ids=" ".join)
    def test_one_that_ends_in_the_middle(self, command: tuple[str, ...], tmp_path: Path) -> None:
        text = LOCK.read_text()
        torn = text[: text.index("sha256:") + 20].rstrip() + '\n  written_at: "2026'
        played = play(*command, "-i", inventory(tmp_path, lock=torn))
        record = refused(played, f"{tmp_path}/group_vars/all/{LOCK.name}, line ", "cannot be read (")
        assert "rm " in record["reason"]
        assert record["reason"] in played.output, "the whole sentence is shown, not only recorded"
        assert "Traceback" not in played.output

    @pytest.mark.parametrize(
        ("damage", "words"),
        [
            (lambda text: text[: len(text) // 2], ("rackready_lock is damaged at",)),
            (lambda text: text.replace("sha256:", "sha256:x", 1), ("rackready_lock is damaged at images.", "does not match")),
            (
                lambda text: text + text.removeprefix("---\n"),
                ("cannot be read (Found duplicate mapping key 'rackready_lock')", "take it back from version control"),
            ),
            (lambda text: f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> mine\n", ("cannot be read (", "take it back from version control")),
            (lambda _text: "- rackready_lock\n", ("cannot be read (it holds a list and not a mapping)",)),
            (lambda _text: "rackready_lock:\n", ("rackready_lock is damaged at its top level", "playbooks/pin.yml")),
        ],
        ids=["half", "no digest", "twice", "conflict", "a list", "nothing"],
    )
    def test_one_that_is_damaged(self, damage: Any, words: tuple[str, ...], tmp_path: Path) -> None:
        refused(play("site.yml", "-i", inventory(tmp_path, lock=damage(LOCK.read_text()))), *words)

    def test_pin_says_what_to_remove(self, tmp_path: Path) -> None:
        played = play("playbooks/pin.yml", "-i", inventory(tmp_path, lock="rackready_lock: {"))
        assert played.status != 0
        assert f"remove it and write it again (rm {tmp_path}/group_vars/all/{LOCK.name} && ansible-playbook " in played.output
        assert not list(played.records.iterdir()), "the hosts were not asked"


@contextmanager
def mounted(host: Host, path: str, options: str) -> Iterator[None]:
    """An empty file system over a directory of the host, for a moment."""
    there = host.file(path).is_directory
    host.check_output(f"mkdir -p {path} && mount -t tmpfs -o {options} tmpfs {path}")
    try:
        yield
    finally:
        host.check_output(f"umount {path}" + ("" if there else f" && rmdir {path}"))


class TestFileSystems:
    @pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["run", "check"])
    def test_no_room_for_the_packages(self, host: Host, arguments: tuple[str, ...]) -> None:
        with mounted(host, "/var/cache/apt", "size=10m"):
            refused(
                play("site.yml", *arguments), "/var/cache/apt has 10 MiB free and installing nvidia_driver", "MiB there, so it could stop half-way: make room"
            )

    def test_no_room_for_the_image(self, host: Host) -> None:
        with mounted(host, "/var/lib/docker", "size=10m"):
            refused(play("site.yml"), "/var/lib/docker has 10 MiB free and the image needs", "the pull would fill the disk")

    def test_no_inodes(self, host: Host) -> None:
        with mounted(host, "/var/cache/apt", "size=2g,nr_inodes=100"):
            refused(play("site.yml"), "/var/cache/apt has 99 inodes free", "no more files could be made although there is room")

    def test_a_read_only_file_system(self, host: Host) -> None:
        host.check_output("mount --bind /usr /usr && mount -o remount,bind,ro /usr")
        try:
            refused(play("site.yml"), "The file system of /usr is read-only, so nothing can be written to it", "dmesg")
        finally:
            # Programs that began meanwhile run from there.
            host.check_output("umount --lazy /usr")


class TestUnreachableSources:
    @pytest.fixture(autouse=True)
    def services_down(self) -> Iterator[None]:
        subprocess.run(["docker", "stop", "--time", "1", "rackready-lab-services"], check=True, capture_output=True)
        yield
        lab("up")

    def test_repository_and_registry_are_both_named(self) -> None:
        refused(play("site.yml"), f"https://{SERVICES}/cuda", f"{SERVICES}:5000")


class TestOtherHosts:
    def test_a_host_without_an_nvidia_gpu(self, host: Host) -> None:
        # The device folders lie in a file system of the simulation: moved away and back.
        host.check_output("mkdir -p /run/hidden && mv /sys/bus/pci/devices/* /run/hidden/")
        try:
            refused(play("site.yml"), "There is no NVIDIA GPU on the PCI bus")
        finally:
            host.check_output("mv /run/hidden/* /sys/bus/pci/devices/")

    def test_an_unsupported_distribution(self, host: Host) -> None:
        host.check_output("cp -a /etc/os-release /run/os-release && cp --remove-destination /usr/lib/os-release /etc/os-release")
        try:
            host.check_output('sed -i \'s/^VERSION_ID=.*/VERSION_ID="11"/; s/^PRETTY_NAME=.*/PRETTY_NAME="Debian GNU\\/Linux 11 (bullseye)"/\' /etc/os-release')
            refused(play("site.yml"), "Debian GNU/Linux 11 (bullseye)", "not a supported distribution")
        finally:
            host.check_output("rm /etc/os-release && mv /run/os-release /etc/os-release")
