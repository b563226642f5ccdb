# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of variables that cannot be used. What Ansible itself says of them is tested with the callback (test_record)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.rackready.gpu.plugins.plugin_utils import pin, request, variable_files
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import plans

WHOLE = pin.render({**{name: value for name, value in plans.lock().items() if name != "written_at"}, "written_at": "2026-12-01T04:00:00Z"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\nb: 2\n", None),
        ("a: {b: 1, c: [{b: 1}, {b: 2}]}\nb: 2\n", None),
        ("a: 1\nb: 2\na: 3\n", ("a", 3)),
        ("a:\n  - b: 1\n    c: 2\n    b: 3\n", ("b", 4)),
        ("a: 1\n? [x]\n: 2\n? [x]\n: 3\n", None),
        ("", None),
        ("a: [", None),
    ],
)
def test_a_key_that_stands_twice_is_found_with_its_line(text: str, found: tuple[str, int] | None) -> None:
    assert variable_files.repeated_key(text) == found


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: &a [*a]\n", id="an alias inside itself"),
        pytest.param("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)), id="aliases of aliases"),
    ],
)
def test_aliases_do_not_hold_it_up(text: str) -> None:
    assert variable_files.repeated_key(text) is None
    assert variable_files.repeated_key(f"{text}a: 1\na: 2\n") is not None


def test_a_lock_as_pin_writes_it_has_no_key_twice() -> None:
    assert variable_files.repeated_key(WHOLE) is None


def test_a_lock_that_a_merge_left_twice_is_named_with_line_and_remedy(tmp_path: Path) -> None:
    lock = tmp_path / "group_vars" / "all" / "rackready_images.yml"
    lock.parent.mkdir(parents=True)
    (tmp_path / "hosts.yml").touch()
    hosts = "".join(f"h100-{number:02}.example.com," for number in range(40))  # longer than any name of a file
    sources = [str(tmp_path), str(tmp_path / "hosts.yml"), "h100-01,", hosts, str(tmp_path / "gone")]
    assert variable_files.wrong_locks(sources) == []
    lock.write_text("rackready_lock: {}\nrackready_lock: {}\n", encoding="utf-8")
    assert variable_files.wrong_locks(sources) == [
        f"{lock}, line 2, has rackready_lock for the second time, so it is not clear what is locked: take it back from version control, or remove it and "
        f"write it again (rm {lock} && ansible-playbook -i {tmp_path} playbooks/pin.yml)."
    ]


WITHOUT = {**dict.fromkeys(("", "\n"), "is empty"), **dict.fromkeys(("---\n", "{}\n", "lock: 1\n"), "has no rackready_lock in it")}


@pytest.mark.parametrize(("text", "what"), WITHOUT.items())
def test_a_lock_file_without_a_lock_is_named_with_its_remedy(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "group_vars/all/rackready_images.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    [sentence] = variable_files.wrong_locks([str(tmp_path)])
    assert sentence.startswith(f"{path} {what}, so nothing is locked: take it back from version control, or remove it and write it again (rm {path} && ")
    for good in ("rackready_lock: {}\n", "$ANSIBLE_VAULT;1.1;AES256\n61\n"):
        path.write_text(good, encoding="utf-8")
        assert variable_files.wrong_locks([str(tmp_path)]) == []


@given(st.integers(min_value=0, max_value=len(WHOLE) - len("2026-12-01T04:00:00Z'\n")))
def test_a_lock_whose_end_is_missing_is_never_taken_for_a_whole_one(length: int) -> None:
    try:
        found = yaml.safe_load(WHOLE[:length])
    except yaml.YAMLError:
        return  # Ansible stops there; the record callback says why
    if not isinstance(found, dict) or "rackready_lock" not in found:
        return  # no lock: the plan refuses whatever is not in it
    with pytest.raises(request.RequestError) as caught:
        request.parse(found, load())
    [sentence] = caught.value.sentences
    assert sentence.startswith("rackready_lock is damaged at ")
    assert sentence.endswith("write it again with playbooks/pin.yml.")


def test_an_error_without_a_place_is_about_the_host() -> None:
    sentence = variable_files.unreadable(ValueError("It is odd.\nMore lines"))
    assert sentence == "The variables of this host cannot be read (It is odd), so nothing is known of what this host shall be: correct what the message names."


def test_a_long_message_is_cut() -> None:
    assert len(variable_files.unreadable(ValueError("x" * 5000))) < 400
