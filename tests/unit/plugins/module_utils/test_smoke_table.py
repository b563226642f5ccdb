# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator reads at a terminal: golden texts of whole results, and what a text must be like whatever the result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import Bought
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_table import AT_MOST, render
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_test import run_test
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import NO_RESULT, make_check

from tests.unit import golden, smoke_hosts
from tests.unit.hosts import BUS_IDS, CONVERGED, facts_for
from tests.unit.playbooks import ROOT
from tests.unit.smoke_fakes import MODEL, figure, rank_events, result, uuid_of, window
from tests.unit.smoke_hosts import STAMP, WORLD, Host, floors_of, replaced, request, request_of

DIRECTORY = Path(__file__).parent / "golden"
HARDWARE = ROOT / "tests/hardware/2026-12-01-h200/rackready-verify-quick.json"


def accepted(folder: Path) -> dict[str, Any]:
    return run_test(request_of("accept"), slow(Host(folder)).machine())


def rejected(folder: Path) -> dict[str, Any]:
    """Wrong products on one GPU, and a link that is not what it should be."""
    host = slow(Host(folder))
    events = [rank_events(rank, WORLD) for rank in range(WORLD)]
    events[1] = replaced(events[1], "matmul_exact.fp8", result("matmul_exact.fp8", "fail", "1 of 9 elements are wrong"))
    events[0] = replaced(events[0], "copy.host_to_device", {"event": "measured", "name": "copy.host_to_device", "value": figure("copy.host_to_device", 12.5)})
    host.runs[0].events = events
    return run_test(request(), host.machine())


def incomplete(folder: Path) -> dict[str, Any]:
    """In use: everything else has no result, and that is not told 60 times."""
    facts = facts_for(**{**CONVERGED, "gpus": WORLD})
    facts["holders"].append({"device": "/dev/nvidia0", "pid": 7, "command": "train", "unit": None, "container": None, "role": "workload"})
    return run_test(request(), Host(folder, [facts]).machine())


def eight(folder: Path) -> dict[str, Any]:
    """Eight GPUs that differ in speed, two of which are slow, with floors that nobody confirmed."""
    host = slow(Host(folder, [facts_for(**CONVERGED)]))
    host.window = window(8)
    events = [rank_events(rank, 8) for rank in range(8)]
    for rank in range(8):
        speed = 600.0 if rank in (2, 5) else 660.0 + rank
        events[rank] = replaced(events[rank], "matmul.bf16", {"event": "measured", "name": "matmul.bf16", "value": figure("matmul.bf16", speed)})
    host.runs[0].events = events
    card = request().gpus[0]
    floors = {MODEL: {name: [{**entry, "verified": False} for entry in entries] for name, entries in floors_of()[MODEL].items()}}
    wanted = request(
        gpus=[{**card, "pci_bus_id": bus_id} for bus_id in BUS_IDS],
        stamp={**STAMP, "gpus": [uuid_of(rank) for rank in range(8)]},
        bought=Bought(MODEL, 8),
        floors=floors,
    )
    return run_test(wanted, host.machine())


def slow(host: Host) -> Host:
    host.takes_s = 41.0
    return host


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {"accepted": accepted, "rejected": rejected, "incomplete": incomplete, "eight-gpus": eight}


def shown(name: str, folder: Path) -> str:
    return render("h100-01", CASES[name](folder))


@pytest.mark.parametrize("name", CASES)
def test_golden_text(name: str, tmp_path: Path) -> None:
    golden.compare(DIRECTORY / f"verify-{name}.txt", shown(name, tmp_path))


def test_golden_text_of_a_real_h200() -> None:
    golden.compare(DIRECTORY / "verify-real-h200.txt", render("gpu-1", json.loads(HARDWARE.read_text(encoding="utf-8"))))


def test_golden_files_are_those_of_the_cases() -> None:
    golden.nothing_else_in(DIRECTORY, [*(f"verify-{name}.txt" for name in CASES), "verify-real-h200.txt"])


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_comes_first_then_what_went_wrong_then_the_table(name: str, tmp_path: Path) -> None:
    lines = shown(name, tmp_path).splitlines()
    assert re.match(r"h100-01: (ACCEPTED|REJECTED|INCOMPLETE) \(tier (quick|accept), [0-9]+ s\)$", lines[0])
    table = next(at for at, line in enumerate(lines) if line.startswith("CHECK "))
    sections = [at for at, line in enumerate(lines) if line in ("FAIL", "COULD NOT RUN", "DEGRADED", "ADVICE, WHICH DECIDES NOTHING")]
    assert all(2 <= at < table for at in sections)
    assert sections == sorted(sections)


@pytest.mark.parametrize("name", CASES)
def test_the_table_is_aligned_and_fits_a_terminal(name: str, tmp_path: Path) -> None:
    lines = shown(name, tmp_path).splitlines()
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("CHECK ")) :]
    table = table[: table.index("")] if "" in table else table
    for column in ("RESULT", "VALUE", "FLOOR"):
        at = table[0].index(column) if column in table[0] else None
        assert at is None or all(line[at - 2 : at].strip() == "" for line in table)
    assert max(map(len, table)) <= 100
    assert all(line == line.rstrip() for line in lines)


def told(*checks: Any, **more: Any) -> str:
    base = {"verdict": "rejected", "tier": "quick", "seconds": 1.0, "reason": "so it is", "remedy": None, "not_exercised": [], "checks": checks}
    return render("h", {**base, **more})


def test_every_failure_has_its_remedy_below_it() -> None:
    text = told(make_check("a", "fail", "it is broken", remedy="mend it"), make_check("b", "degraded", "it is slow", remedy="cool it"))
    assert "FAIL\n  a: it is broken\n    What to do: mend it\n\nDEGRADED\n  b: it is slow\n    What to do: cool it\n" in text


def test_the_same_failure_of_several_gpus_is_one_entry_that_names_them() -> None:
    checks = [make_check("a", "fail", "no answer", gpu={"uuid": None, "pci_bus_id": bus_id}) for bus_id in BUS_IDS]
    assert f"  a on GPU {', '.join(BUS_IDS[:3])} and 5 more: no answer\n" in told(*checks)


def test_different_failures_of_several_gpus_are_each_told() -> None:
    checks = [make_check("a", "fail", f"{number} are wrong", gpu={"uuid": None, "pci_bus_id": bus_id}) for number, bus_id in enumerate(BUS_IDS[:2])]
    text = told(*checks)
    assert f"a on GPU {BUS_IDS[0]}: 0 are wrong" in text and f"a on GPU {BUS_IDS[1]}: 1 are wrong" in text


def test_of_very_many_the_first_are_told_and_how_many_more_there_are() -> None:
    text = told(*(make_check(f"c{number}", "fail", "no") for number in range(AT_MOST + 3)))
    assert f"  c{AT_MOST - 1}: no\n  and 3 more: --json has all of them\n" in text and f"  c{AT_MOST}: no" not in text


def test_what_only_lacks_a_result_is_no_entry_of_its_own() -> None:
    text = told(make_check("a", "could_not_run", NO_RESULT), make_check("b", "could_not_run", "the engine does not answer"))
    assert "COULD NOT RUN\n  b: the engine does not answer\n\n" in text
    assert re.search(r"^a +no result$", text, re.MULTILINE)


def test_figures_are_told_from_the_least_to_the_greatest_with_their_floor() -> None:
    checks = [make_check("s", "pass", value={"median": value}, floor={"floor": 592}, unit="TFLOP/s") for value in (662.04, 668.41, 1234.5)]
    assert re.search(r"^s +3 pass  662 to 1234 TFLOP/s  592 TFLOP/s$", told(*checks), re.MULTILINE)


def test_of_pairs_the_slowest_is_told() -> None:
    checks = [make_check("p", "pass", value={"slowest": value, "to": BUS_IDS[0]}, floor={"floor": 90}, unit="GB/s") for value in (380.0, 390.0)]
    assert re.search(r"^p +2 pass  380 to 390 GB/s  90 GB/s$", told(*checks), re.MULTILINE)


def test_a_figure_without_a_floor_has_none_in_the_table() -> None:
    assert re.search(r"^s +degraded  5.5 GB/s$", told(make_check("s", "degraded", value={"median": 5.5}, unit="GB/s")), re.MULTILINE)


@pytest.mark.parametrize(
    "check",
    [
        make_check("c", "pass", value={"exit_code": 0}, floor=79, unit="s"),  # a limit and no floor
        make_check("c", "pass", value={"cuda": 1}, floor=144384, unit="MiB"),
        make_check("c", "pass", value=True, floor=True),
        make_check("c", "pass", value="Default", floor="Default"),
        make_check("c", "pass", value=None, floor=[]),
    ],
)
def test_what_is_no_figure_has_neither_value_nor_floor_in_the_table(check: Any) -> None:
    assert re.search(r"^c +pass$", told(check), re.MULTILINE)


def test_several_results_of_one_name_are_counted_the_worst_first() -> None:
    assert re.search(r"^a +1 fail, 2 pass$", told(*(make_check("a", status, "r") for status in ("pass", "fail", "pass"))), re.MULTILINE)


def test_advice_is_called_that_and_stands_apart() -> None:
    text = told(make_check("acs", "degraded", "ACS is on", required=False), make_check("a", "degraded", "slow"))
    assert "DEGRADED\n  a: slow\n\nADVICE, WHICH DECIDES NOTHING\n  acs: ACS is on\n" in text
    assert re.search(r"^acs +degraded \(advice\)$", text, re.MULTILINE)


def test_without_any_check_there_is_no_table() -> None:
    assert told(remedy="read it") == "h: REJECTED (tier quick, 1 s)\nso it is\nWhat to do: read it\n"


def test_what_was_excused_is_a_line_below_the_table() -> None:
    text = told(make_check("imex", "not_applicable", "no rack", required=False), make_check("a", "pass"))
    assert text.endswith("\n\nNot applicable to this host: imex\n") and "imex  " not in text


def test_a_result_of_the_module_can_be_rendered_too(tmp_path: Path) -> None:
    assert "STAMP" not in render("h", run_test(smoke_hosts.request(), Host(tmp_path).machine()))
