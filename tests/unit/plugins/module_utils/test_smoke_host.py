# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each card against the order form, the catalog, the driver and CUDA; and what keeps a host from being tested."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import (
    Bought,
    Counted,
    compute_mode,
    device_nodes,
    driver_library_match,
    gpu_count,
    gpu_idle,
    gpu_memory,
    gpu_model,
    imex,
    mig_mode,
    persistence,
    smi_missing,
)

from tests.unit.hosts import BUS_IDS, CONVERGED, DRIVER, facts_for
from tests.unit.smoke_fakes import MODEL, gpus

NAME = "NVIDIA H100 80GB HBM3"
CARD = gpus(1)[0]
BOUGHT = Bought(MODEL, 2)


def host(**smi: Any) -> dict[str, Any]:
    """Facts of two GPUs, of which nvidia-smi says this of the first one."""
    facts = facts_for(**{**CONVERGED, "gpus": 2})
    facts["nvidia_smi"]["gpus"][0].update(smi)
    return facts


def silent(state: str = "hung") -> dict[str, Any]:
    facts = host()
    facts["nvidia_smi"].update(state=state, error="words", gpus=[])
    return facts


OF_A_CARD = {
    "gpu_model": lambda facts: gpu_model(CARD, facts, None),
    "gpu_memory": lambda facts: gpu_memory(CARD, facts),
    "compute_mode": lambda facts: compute_mode(CARD, facts),
    "persistence": lambda facts: persistence(CARD, facts),
    "mig_mode": lambda facts: mig_mode(CARD, facts, "off"),
}


@pytest.mark.parametrize("name", OF_A_CARD)
def test_a_card_that_nvidia_smi_does_not_tell_of_is_no_pass(name: str) -> None:
    assert OF_A_CARD[name](host())["status"] == "pass"
    lost = host()
    lost["nvidia_smi"]["gpus"].pop(0)
    for facts, words in ((silent(), "nvidia-smi is hung: words"), (lost, "nvidia-smi does not list the GPU")):
        check = OF_A_CARD[name](facts)
        assert (check["name"], check["status"], check["reason"], check["gpu"]) == (name, "could_not_run", words, CARD.gpu)


BENT: list[tuple[str, str, dict[str, Any]]] = [
    ("gpu_model", "fail", {"name": "NVIDIA H200"}),
    ("gpu_memory", "fail", {"memory_mib": 40960}),
    ("gpu_memory", "could_not_run", {"memory_mib": None}),
    ("compute_mode", "could_not_run", {"compute_mode": "Prohibited"}),
    ("compute_mode", "degraded", {"compute_mode": None}),
    ("persistence", "degraded", {"persistence": False}),
    ("mig_mode", "could_not_run", {"mig": {"current": "enabled", "pending": "enabled", "instances": []}}),
]


@pytest.mark.parametrize(("name", "status", "change"), [*BENT, *((name, "pass", {}) for name in OF_A_CARD)])
def test_whatever_is_said_of_a_card_names_it(name: str, status: str, change: dict[str, Any]) -> None:
    check = OF_A_CARD[name](host(**change))
    assert (check["name"], check["status"], check["gpu"]) == (name, status, CARD.gpu)


class TestModel:
    @pytest.mark.parametrize(
        ("card", "facts", "bought", "cuda", "words"),
        [
            ({"pci_id": "10de:2331"}, {}, BOUGHT, None, "the card on the bus is 10de:2330, the plan says 10de:2331"),
            ({}, {}, Bought("h200-sxm-141gb", 2), None, f"it is {MODEL}, gpu_expected says h200-sxm-141gb"),
            ({"model": None}, {}, BOUGHT, None, f"it is a card that the catalog does not know, gpu_expected says {MODEL}"),
            ({}, {"name": "NVIDIA H100 PCIe"}, BOUGHT, None, f"nvidia-smi calls it NVIDIA H100 PCIe, the plan says {NAME}"),
            ({}, {}, BOUGHT, {"name": "NVIDIA H200"}, f"CUDA calls it NVIDIA H200, nvidia-smi {NAME}"),
            ({}, {}, BOUGHT, {"name": f"{NAME} MIG 1g.10gb"}, f"CUDA calls it {NAME} MIG 1g.10gb, nvidia-smi {NAME}"),
            ({"instance": "MIG-1"}, {}, BOUGHT, {"name": "NVIDIA H200 MIG 1g.10gb"}, f"CUDA calls it NVIDIA H200 MIG 1g.10gb, nvidia-smi {NAME}"),
        ],
    )
    def test_each_of_the_four_sources_can_differ(self, card: dict[str, Any], facts: dict[str, Any], bought: Bought, cuda: Any, words: str) -> None:
        check = gpu_model(CARD._replace(**card), host(**facts), bought, cuda)
        assert (check["status"], check["reason"]) == ("fail", words)
        assert "gpu_expected" in str(check["remedy"])

    def test_what_agrees(self) -> None:
        check = gpu_model(CARD, host(), BOUGHT, {"name": NAME})
        assert (check["status"], check["value"]) == (
            "pass",
            {"gpu_expected": MODEL, "model": MODEL, "pci_id": "10de:2330", "nvidia_smi": NAME, "cuda": NAME},
        )
        assert gpu_model(CARD, host(), None)["status"] == "pass"
        assert gpu_model(CARD._replace(pci_id=None, name=None, model=None), host(), None)["status"] == "pass"
        assert gpu_model(CARD._replace(instance="MIG-1"), host(), BOUGHT, {"name": f"{NAME} MIG 1g.10gb"})["status"] == "pass"

    def test_a_card_that_is_gone_from_the_bus(self) -> None:
        facts = host()
        facts["gpus"].pop(0)
        assert gpu_model(CARD, facts, BOUGHT)["reason"] == "the card on the bus is none, the plan says 10de:2330"

    @pytest.mark.parametrize(
        ("facts", "cuda", "who"), [({"name": None}, None, "nvidia-smi"), ({}, {}, "CUDA"), ({"name": None}, {"name": None}, "nvidia-smi and CUDA")]
    )
    def test_who_tells_no_name(self, facts: dict[str, Any], cuda: Any, who: str) -> None:
        check = gpu_model(CARD._replace(name=None), host(**facts), BOUGHT, cuda)
        assert (check["status"], check["reason"], check["gpu"]) == ("could_not_run", f"{who} told no name of it", CARD.gpu)


class TestMemory:
    @pytest.mark.parametrize(
        ("mib", "cuda", "status", "words"),
        [
            (81559, None, "pass", "None"),
            (73728, None, "pass", "None"),
            (73727, None, "fail", "it has 73727 MiB, a card of this model has 81920"),
            (90112, None, "pass", "None"),
            (90113, None, "fail", "it has 90113 MiB, a card of this model has 81920"),
            (40960, None, "fail", "it has 40960 MiB"),
            (None, None, "could_not_run", "nvidia-smi does not tell its memory"),
            (0, None, "could_not_run", "nvidia-smi does not tell its memory"),
            (81559, {"memory_mib": 81082}, "pass", "None"),
            (80000, {"memory_mib": 76000}, "pass", "None"),
            (80000, {"memory_mib": 75999}, "fail", "CUDA has 75999 MiB of the 80000 MiB that nvidia-smi tells"),
            (81559, {"memory_mib": None}, "could_not_run", "CUDA did not tell its memory"),
            (81559, {}, "could_not_run", "CUDA did not tell its memory"),
            (81559, {"memory_mib": True}, "could_not_run", "CUDA did not tell its memory"),
        ],
    )
    def test_card_driver_and_cuda(self, mib: int | None, cuda: Any, status: str, words: str) -> None:
        check = gpu_memory(CARD, host(memory_mib=mib), cuda)
        assert (check["status"], words in str(check["reason"])) == (status, True), check["reason"]
        assert (check["floor"], check["unit"]) == (81920, "MiB")

    def test_a_card_of_unknown_size_is_no_pass(self) -> None:
        check = gpu_memory(CARD._replace(memory_gb=None), host())
        assert (check["status"], check["floor"]) == ("degraded", None)

    def test_a_part_of_a_gpu_has_a_part_of_its_memory(self) -> None:
        check = gpu_memory(CARD._replace(instance="MIG-1"), host(), {"memory_mib": 9856})
        assert (check["status"], check["value"]) == ("pass", {"nvidia_smi": 81559, "cuda": None})
        assert gpu_memory(CARD, host(), {"memory_mib": 81082})["value"] == {"nvidia_smi": 81559, "cuda": 81082}


class TestModes:
    @pytest.mark.parametrize(
        ("mode", "status"), [("Default", "pass"), ("Exclusive_Process", "could_not_run"), ("Prohibited", "could_not_run"), (None, "degraded")]
    )
    def test_compute_mode(self, mode: str | None, status: str) -> None:
        check = compute_mode(CARD, host(compute_mode=mode))
        assert check["status"] == status
        if status != "pass":
            assert check["remedy"] == f"set it back: `nvidia-smi -i {BUS_IDS[0]} -c DEFAULT`"

    @pytest.mark.parametrize(("on", "status"), [(True, "pass"), (False, "degraded"), (None, "degraded")])
    def test_persistence(self, on: bool | None, status: str) -> None:
        check = persistence(CARD, host(persistence=on))
        words = {True: None, False: "persistence mode is off", None: "nvidia-smi does not report persistence mode"}[on]
        assert (check["status"], check["reason"], check["value"]) == (status, words, on)


def mig(current: str, pending: str | None = None, *profiles: str, uuid: str | None = "MIG-1") -> dict[str, Any]:
    instances = [{"profile": profile, "gi": 7, "ci": 0, "placement_start": 0, "uuid": uuid} for profile in profiles]
    return {"current": current, "pending": pending or current, "instances": instances}


class TestMig:
    @pytest.mark.parametrize(
        ("there", "planned", "words"),
        [
            (mig("disabled"), "off", None),
            (mig("unsupported"), "off", None),
            # What is left of a division that was undone does not count.
            (mig("disabled", None, "1g.10gb"), "off", None),
            (mig("disabled"), {BUS_IDS[1]: ["1g.10gb"]}, None),
            (mig("enabled", None, "1g.10gb", "1g.10gb"), {BUS_IDS[0]: ["1g.10gb", "1g.10gb"]}, None),
            (mig("enabled", None, "3g.40gb", "1g.10gb"), {BUS_IDS[0]: ["1g.10gb", "3g.40gb"]}, None),
            (mig("disabled", "enabled"), "off", "MIG mode is disabled and waits for a reset to be enabled"),
            (mig("enabled", "disabled"), "off", "MIG mode is enabled and waits for a reset to be disabled; MIG mode is enabled, the plan says off"),
            (mig("enabled", None, "1g.10gb"), "off", "MIG mode is enabled, the plan says off"),
            (mig("disabled"), {BUS_IDS[0]: ["1g.10gb"]}, "MIG mode is disabled, the plan says 1g.10gb"),
            (mig("enabled"), {BUS_IDS[0]: ["1g.10gb"]}, "it is divided into nothing, the plan says 1g.10gb"),
            (mig("enabled", None, "2g.20gb"), {BUS_IDS[0]: ["1g.10gb"]}, "it is divided into 2g.20gb, the plan says 1g.10gb"),
            (mig("enabled", None, "1g.10gb", uuid=None), {BUS_IDS[0]: ["1g.10gb"]}, "nvidia-smi tells no UUID of an instance"),
        ],
    )
    def test_mode_and_instances_against_the_plan(self, there: dict[str, Any], planned: Any, words: str | None) -> None:
        check = mig_mode(CARD, host(mig=there), planned)
        assert check["status"] == ("pass" if words is None else "could_not_run")
        assert str(check["reason"]).startswith(str(words))

    def test_one_instance_without_a_uuid_is_enough(self) -> None:
        there = mig("enabled", None, "1g.10gb", "1g.10gb")
        there["instances"][1] = {**there["instances"][1], "uuid": None}
        check = mig_mode(CARD, host(mig=there), {BUS_IDS[0]: ["1g.10gb", "1g.10gb"]})
        assert (check["status"], check["reason"]) == ("could_not_run", "nvidia-smi tells no UUID of an instance, by which a process gets it")


CHANNEL = {"path": "/dev/nvidia-caps-imex-channels/channel0", "major": 240, "minor": 0}


class TestImex:
    @pytest.mark.parametrize(
        ("active", "nodes", "status", "words"),
        [
            ("active", [CHANNEL], "pass", "None"),
            ("failed", [CHANNEL], "could_not_run", "nvidia-imex.service is failed"),
            (None, [CHANNEL], "could_not_run", "nvidia-imex.service is not there"),
            ("active", [], "could_not_run", "there is no /dev/nvidia-caps-imex-channels/channel0"),
        ],
    )
    def test_daemon_and_channel(self, active: str | None, nodes: list[Any], status: str, words: str) -> None:
        facts = host()
        facts["device_nodes"] += nodes
        facts["units"]["nvidia-imex.service"] = {"load": "loaded", "active": active, "enabled": "enabled"}
        check = imex(facts, {})
        assert (check["status"], str(check["reason"])) == (status, words)

    def test_only_in_a_rack(self) -> None:
        check = imex(host(), {"imex": "no rack"})
        assert (check["status"], check["reason"]) == ("not_applicable", "no rack")


class TestCount:
    def test_the_order_form_counts(self) -> None:
        check = gpu_count(gpus(2), host(), Bought(MODEL, 8))
        assert (check["status"], check["reason"]) == ("fail", "2 GPUs are expected, but gpu_expected says 8")
        assert gpu_count(gpus(2), host(), BOUGHT)["value"] == {"expected": 2, "gpu_expected": 2, "pci": 2, "nvidia_smi": 2, "container": None}
        assert gpu_count(gpus(2), host(), None)["value"]["gpu_expected"] is None

    @pytest.mark.parametrize(
        ("devices", "each", "status"),
        [({0: 2, 1: 2}, 2, "pass"), ({0: 1, 1: 1}, 1, "pass"), ({0: 2, 1: 1}, 2, "fail"), ({0: 2}, 1, "fail"), ({}, 2, "pass")],
    )
    def test_each_process_sees_what_it_was_given(self, devices: dict[int, int], each: int, status: str) -> None:
        check = gpu_count(gpus(2), host(), BOUGHT, Counted(devices, each))
        assert check["status"] == status
        assert check["value"]["container"] == (min(devices.values()) if devices else None)

    def test_of_many_processes_that_see_too_few_the_first_is_named(self) -> None:
        check = gpu_count(gpus(2), host(), BOUGHT, Counted({1: 1, 0: 3}, 2))
        assert check["reason"] == "2 GPUs are expected, but rank 0 saw 3 in the container"
        assert check["value"]["container"] == 1

    def test_a_test_of_none_shows_nothing(self) -> None:
        facts = host()
        facts["gpus"], facts["nvidia_smi"]["gpus"] = [], []
        check = gpu_count([], facts, None)
        assert (check["status"], check["reason"], check["floor"]) == ("fail", "0 GPUs are expected, but a test of none shows nothing", 0)

    @pytest.mark.parametrize(
        ("planned", "there", "words"),
        [
            ("GPU-x", "GPU-y", f"2 GPUs are expected, but GPU {BUS_IDS[0]} is GPU-y, the plan says GPU-x"),
            ("GPU-x", None, None),
            (None, "GPU-y", None),
            ("GPU-x", "GPU-x", None),
        ],
    )
    def test_a_card_that_was_exchanged_for_one_of_its_kind(self, planned: str | None, there: str | None, words: str | None) -> None:
        check = gpu_count([CARD._replace(uuid=planned), gpus(2)[1]], host(uuid=there), BOUGHT)
        assert (check["status"], check["reason"]) == ("pass" if words is None else "fail", words)

    def test_without_nvidia_smi_what_it_would_say_is_not_missed(self) -> None:
        check = gpu_count(gpus(2), silent(), BOUGHT)
        assert (check["status"], check["value"]["nvidia_smi"], check["value"]["pci"]) == ("could_not_run", None, 2)

    def test_everything_that_is_wrong_is_said(self) -> None:
        facts = host()
        facts["gpus"].pop(0)
        facts["nvidia_smi"]["gpus"].pop(1)
        check = gpu_count(gpus(2), facts, Bought(MODEL, 8))
        assert check["reason"] == (f"2 GPUs are expected, but gpu_expected says 8; the PCI bus lacks {BUS_IDS[0]}; nvidia-smi lacks {BUS_IDS[1]}")
        check = gpu_count(gpus(1), host(), None)
        assert check["reason"] == "1 GPUs are expected, but " + "; ".join(
            f"{where} has {BUS_IDS[1]}, which the plan does not expect" for where in ("the PCI bus", "nvidia-smi")
        )


class TestIdle:
    @pytest.mark.parametrize(("number", "more"), [(1, ""), (8, ""), (9, "; 1 more"), (11, "; 3 more")])
    def test_eight_of_its_users_are_named_and_all_are_kept(self, number: int, more: str) -> None:
        facts = host()
        services = len(facts["holders"])
        facts["holders"] += [{"device": "/dev/nvidia0", "pid": 100 + at, "command": "train", "unit": None, "container": None} for at in range(number)]
        check = gpu_idle(facts)
        users = [f"/dev/nvidia0 is open in process {100 + at} (train)" for at in range(number)]
        assert check["reason"] == "the GPUs are in use, so nothing was started: " + "; ".join(users[:8]) + more
        assert (check["status"], check["value"]) == ("could_not_run", {"users": users})
        assert gpu_idle(host())["value"] == {"holders": services}

    def test_a_process_is_named_once(self) -> None:
        processes = [{"pid": 7, "name": "train"}, {"pid": 8, "name": "other"}]
        facts = host(processes=processes)
        facts["holders"].append({"device": "/dev/nvidia0", "pid": 7, "command": "train", "unit": "u.service", "container": None})
        assert gpu_idle(facts)["value"]["users"] == [
            "/dev/nvidia0 is open in process 7 (train), unit u.service",
            f"GPU {BUS_IDS[0]} is used by process 8 (other)",
        ]


@pytest.mark.parametrize(
    ("state", "error", "reason", "remedy"),
    [
        ("absent", None, "nvidia-smi is absent: no further words", "install the driver"),
        ("hung", "after 15 s", "nvidia-smi is hung: after 15 s", "look for Xid"),
        ("failed", "exit 9", "nvidia-smi is failed: exit 9", "mismatched versions need a reboot"),
    ],
)
def test_an_answer_that_does_not_come(state: str, error: str | None, reason: str, remedy: str) -> None:
    check = smi_missing("gpu_count", {"state": state, "error": error}, {"pci": 2}, CARD.gpu)
    assert (check["name"], check["status"], check["reason"], check["value"], check["gpu"]) == ("gpu_count", "could_not_run", reason, {"pci": 2}, CARD.gpu)
    assert remedy in str(check["remedy"])


def test_who_tells_no_version_of_the_driver() -> None:
    facts = host()
    facts["library_version"], facts["modules"]["nvidia"]["version"] = None, None
    check = driver_library_match(facts, None)
    assert (check["status"], check["reason"]) == ("could_not_run", "the driver version is not told by: module, library")
    assert check["value"] == {"planned": None, "module": None, "library": None, "nvidia_smi": DRIVER}
    facts["modules"] = {}
    assert driver_library_match(facts, DRIVER)["status"] == "could_not_run"
    facts["library_version"] = "580.1"
    check = driver_library_match(facts, DRIVER)
    assert (check["status"], check["reason"]) == ("fail", f"driver versions differ: planned {DRIVER}, library 580.1, nvidia_smi {DRIVER}")


class TestNodes:
    def inside(self, **changes: Any) -> dict[str, Any]:
        return {**{node["path"]: [node["major"], node["minor"]] for node in host()["device_nodes"]}, **changes}

    def test_what_is_counted(self) -> None:
        before, after = device_nodes(gpus(2), host()), device_nodes(gpus(2), host(), self.inside())
        assert (before["status"], before["value"], before["floor"]) == ("pass", {"host": 2, "container": None}, 2)
        assert (after["status"], after["value"], after["floor"]) == ("pass", {"host": 2, "container": 2}, 2)

    def test_one_too_many_is_as_odd_as_one_too_few(self) -> None:
        more = device_nodes(gpus(2), host(), self.inside(**{"/dev/nvidia2": [195, 2]}))
        assert (more["status"], more["reason"]) == ("could_not_run", "the container has 3 GPU nodes, 2 are expected")
        assert device_nodes(gpus(1), host())["reason"] == "the host has 2 GPU nodes, 1 are expected"

    def test_a_node_that_only_the_container_has_is_compared_with_nothing(self) -> None:
        assert device_nodes(gpus(2), host(), self.inside(**{"/dev/nvidia-modeset": [195, 254]}))["status"] == "pass"

    def test_six_things_are_said(self) -> None:
        odd = {path: [1, 1] for path in self.inside()}
        facts = host()
        facts["device_nodes"] = [node for node in facts["device_nodes"] if node["path"] != "/dev/nvidiactl"]
        assert str(device_nodes(gpus(8), facts, odd)["reason"]).count(";") == 5
        assert str(device_nodes(gpus(8), facts, odd)["reason"]).startswith(
            "the host lacks /dev/nvidiactl; the host has 2 GPU nodes, 8 are expected; the container has"
        )
