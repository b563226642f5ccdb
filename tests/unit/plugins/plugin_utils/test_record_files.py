# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where records lie, and that a reader never sees half of one."""

from __future__ import annotations

import errno
import json
import os
import pwd
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils.record_files import (
    Destination,
    folder_of,
    playbook_name,
    problem_with,
    project_directory,
    records_directory,
    refusal,
    write_record,
)

STAMP = "20261201T040506Z"


def record(number: int = 0, host: str = "h1") -> dict[str, Any]:
    return {"host": host, "number": number, "text": "Größe"}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_record_and_latest_have_the_same_content(tmp_path: Path) -> None:
    path = write_record(tmp_path, STAMP, record())
    assert path == tmp_path / "h1" / f"{STAMP}.json"
    assert read(path) == read(tmp_path / "h1/latest.json") == record()
    assert len(list((tmp_path / "h1").iterdir())) == 2


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_records_are_for_their_owner_alone(tmp_path: Path, umask: int) -> None:
    """Also one that replaces another, and one whose name a leftover with open doors had."""
    before = os.umask(umask)
    try:
        (tmp_path / "h1").mkdir()
        leftover = tmp_path / "h1" / f".latest.json.{STAMP}.tmp"
        leftover.touch(0o666)
        path = write_record(tmp_path, STAMP, record(1))
        modes = [stat.S_IMODE(file.stat().st_mode) for file in (path, tmp_path / "h1/latest.json")]
        write_record(tmp_path, STAMP, record(2), path)
        modes += [stat.S_IMODE(file.stat().st_mode) for file in (path, tmp_path / "h1/latest.json")]
    finally:
        os.umask(before)
    assert modes == [0o600] * 4


def test_runs_of_one_second_do_not_overwrite_each_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda number: write_record(tmp_path, STAMP, record(number)), range(24)))
    assert len(set(paths)) == 24
    assert sorted(read(path)["number"] for path in paths) == list(range(24))
    assert {path.name for path in paths} == {f"{STAMP}.json"} | {f"{STAMP}-{number}.json" for number in range(2, 25)}


def test_a_run_replaces_its_own_record(tmp_path: Path) -> None:
    path = write_record(tmp_path, STAMP, record(1))
    assert write_record(tmp_path, STAMP, record(2), path) == path
    assert read(path)["number"] == read(tmp_path / "h1/latest.json")["number"] == 2


def test_leftovers_of_a_killed_run_are_stepped_over(tmp_path: Path) -> None:
    (tmp_path / "h1").mkdir()
    leftover = tmp_path / "h1" / f".{STAMP}.json.tmp"
    leftover.write_text('{"ho', encoding="utf-8")
    assert write_record(tmp_path, STAMP, record()).name == f"{STAMP}-2.json"
    assert leftover.exists()


def test_a_failed_write_leaves_the_old_record_and_nothing_else(tmp_path: Path) -> None:
    path = write_record(tmp_path, STAMP, record(1))
    (tmp_path / "h1/latest.json").unlink()
    (tmp_path / "h1/latest.json").mkdir()
    with pytest.raises(OSError, match="latest"):
        write_record(tmp_path, STAMP, record(2))
    assert read(path)["number"] == 1
    assert not list((tmp_path / "h1").glob(f".{STAMP}*"))


@pytest.mark.parametrize("host", ["../../etc", "..", ".", "a/b", "a\0b", "h1:2222", "hôte"])
def test_no_host_name_leads_out_of_the_directory(tmp_path: Path, host: str) -> None:
    path = write_record(tmp_path / "records", STAMP, record(host=host))
    assert path.parent.parent == tmp_path / "records"
    assert path.resolve().parent.parent == (tmp_path / "records").resolve()


def test_host_folders_are_distinct() -> None:
    hosts = ["a/b", "a%2Fb", "a%252Fb", "..", "%2E%2E"]
    assert len({folder_of(host) for host in hosts}) == len(hosts)


def test_project_is_the_checkout_and_never_an_installed_collection(tmp_path: Path) -> None:
    checkout, installed, current = tmp_path / "checkout", tmp_path / "lib/ansible_collections/rackready/gpu", tmp_path / "here"
    for root in (checkout, installed):
        (root / "playbooks").mkdir(parents=True)
        (root / "galaxy.yml").touch()
        (root / "playbooks/verify.yml").touch()
    current.mkdir()
    linked = checkout / "collections/ansible_collections/rackready/gpu"
    linked.mkdir(parents=True)
    (linked / "playbooks").symlink_to(checkout / "playbooks")
    assert project_directory(checkout / "playbooks/verify.yml", current) == checkout
    assert project_directory(linked / "playbooks/verify.yml", current) == checkout
    assert project_directory(installed / "playbooks/verify.yml", current) == current
    assert project_directory(tmp_path / "site.yml", current) == current
    assert project_directory(None, current) == current


def test_playbook_name(tmp_path: Path) -> None:
    assert playbook_name(tmp_path / "playbooks/plan.yml", tmp_path) == "playbooks/plan.yml"
    assert playbook_name(tmp_path / "a/b.yml", tmp_path / "c") == str(tmp_path / "a/b.yml")
    assert playbook_name(None, tmp_path) == ""


def test_records_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert records_directory(None, tmp_path) == tmp_path / "records"
    assert records_directory("kept", tmp_path) == tmp_path / "kept"
    assert records_directory("/var/records", tmp_path) == Path("/var/records")
    assert records_directory("~/records", tmp_path) == tmp_path / "home/records"


def test_problem_with(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory"
    inventory.mkdir()
    (tmp_path / "file").touch()
    hosts = "".join(f"h100-{number:02}.example.com," for number in range(40))  # longer than any name of a file
    assert problem_with(tmp_path / "not/there/yet", [inventory, Path("localhost,"), Path(hosts)]) is None
    assert problem_with(inventory / "records", [inventory]) == f"it lies inside the inventory {inventory}"
    assert problem_with(inventory, [inventory]) == f"it lies inside the inventory {inventory}"
    assert problem_with(tmp_path / "file/records", []) == f"{tmp_path / 'file'} is not a directory"
    link = tmp_path / "link"
    link.symlink_to(inventory)
    assert problem_with(link / "records", [inventory]) == f"it lies inside the inventory {inventory}"


@pytest.mark.parametrize("full_at", [1, 2], ids=["at the record", "at latest.json"])
def test_a_full_disk_leaves_the_last_record_whole_and_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int) -> None:
    write_record(tmp_path, "20261201T000000Z", {"host": "h1", "run": 1})
    calls = 0

    def full(_descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_record(tmp_path, "20261201T000001Z", {"host": "h1", "run": 2})
    assert json.loads((tmp_path / "h1" / "latest.json").read_text(encoding="utf-8"))["run"] == 1
    assert not list((tmp_path / "h1").glob(".*"))
    # The next run, with room again, is not in the way of what this one left.
    monkeypatch.undo()
    write_record(tmp_path, "20261201T000001Z", {"host": "h1", "run": 3})
    assert json.loads((tmp_path / "h1" / "latest.json").read_text(encoding="utf-8"))["run"] == 3


def test_where_a_record_can_be_written_nothing_is_refused_and_nothing_left(tmp_path: Path) -> None:
    assert refusal("h1", None, Destination(tmp_path)) is None
    assert [*(tmp_path / "records/h1").iterdir()] == []
    assert refusal("h1", "/proc/nowhere", Destination()) is None, "nobody would write it"


@pytest.mark.parametrize(
    ("number", "words", "remedy"),
    [
        (errno.EACCES, "Permission denied", "give it to that user (chown -R "),
        (errno.EROFS, "Read-only file system", "mount its file system writable, or set "),
        (errno.ENOSPC, "No space left on device", "make room there (df -h "),
        (errno.EDQUOT, "Disk quota exceeded", "make room there (df -h "),
        (errno.EIO, "Input/output error", "set rackready_records_dir to a directory that can be written"),
    ],
)
def test_what_keeps_a_record_from_being_written_is_tried_and_refused_with_path_user_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, remedy: str
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    sentence = refusal("h1", "kept", Destination(tmp_path))
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert sentence is not None
    assert sentence.startswith(f"No record can be written to {tmp_path}/kept on the controller by the user {user} ({tmp_path}/kept: {words}), so ")
    assert f": {remedy}" in sentence
    assert sentence.endswith("set rackready_records_dir to a directory that can be written, then run again.")
    assert [*(tmp_path / "kept/h1").iterdir()] == []


def test_a_file_in_the_way_and_an_inventory_around_it_are_refused(tmp_path: Path) -> None:
    (tmp_path / "records").touch()
    assert f"({tmp_path}/records/h1: Not a directory), so" in str(refusal("h1", None, Destination(tmp_path)))
    inside = refusal("h1", "site/records", Destination(tmp_path, (tmp_path / "site",)))
    assert inside is None, "no inventory is there"
    (tmp_path / "site").mkdir(exist_ok=True)
    assert f"(it lies inside the inventory {tmp_path}/site), so" in str(refusal("h1", "site/records", Destination(tmp_path, (tmp_path / "site",))))
