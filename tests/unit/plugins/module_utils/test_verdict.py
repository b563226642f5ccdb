# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict's rules: a table that misses no comparison, and properties that hold whatever the results are."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import STATUSES, Check, Gpu, Requirement, Verdict, evaluate, label, make_check
from hypothesis import given
from hypothesis import strategies as st

SCHEMAS = Path(__file__).parents[4] / "plugins/plugin_utils/schemas"
A = Gpu(uuid="GPU-a", pci_bus_id="0000:1a:00.0")
B = Gpu(uuid="GPU-b", pci_bus_id="0000:1b:00.0")
WANTED = [Requirement("count"), Requirement("matmul", A), Requirement("matmul", B)]
GOOD = [make_check("count", "pass"), make_check("matmul", "pass", gpu=A), make_check("matmul", "pass", gpu=B)]


def judge(results: list[Check], required: list[Requirement] | None = None, backend: str = "cuda", **policy: object) -> Verdict:
    return evaluate(results, WANTED if required is None else required, backend, **policy)  # type: ignore[arg-type]


def with_b(status: str, reason: str | None = "why", remedy: str | None = None) -> list[Check]:
    """The good results, but for the second GPU's product."""
    return [*GOOD[:2], make_check("matmul", status, reason, remedy=remedy, gpu=B)]


@pytest.mark.parametrize(
    ("results", "policy", "verdict"),
    [
        (GOOD, {}, "accepted"),
        (GOOD, {"backend": "cpu"}, "simulated"),
        (with_b("degraded"), {}, "accepted"),
        (with_b("degraded"), {"backend": "cpu"}, "simulated"),
        (with_b("degraded"), {"degraded": "reject"}, "rejected"),
        (with_b("fail"), {}, "rejected"),
        (with_b("fail"), {"backend": "cpu"}, "rejected"),
        (with_b("could_not_run"), {}, "incomplete"),
        (with_b("could_not_run"), {"backend": "cpu"}, "incomplete"),
        # A failure outweighs what could not run, in either order; so does a rejected degradation.
        ([*with_b("fail"), make_check("more", "could_not_run")], {}, "rejected"),
        ([make_check("more", "could_not_run"), *with_b("fail")], {}, "rejected"),
        ([make_check("more", "could_not_run"), *with_b("degraded")], {"degraded": "reject"}, "rejected"),
        ([make_check("more", "could_not_run"), *with_b("degraded")], {}, "incomplete"),
        # Missing, and missing for one GPU only.
        ([], {}, "incomplete"),
        (GOOD[:2], {}, "incomplete"),
        (GOOD[1:], {}, "incomplete"),
        # The payload's own words are not the plan's.
        (with_b("not_applicable"), {}, "incomplete"),
        (with_b("not_applicable"), {"not_applicable": {"count": "other check"}}, "incomplete"),
        (with_b("not_applicable"), {"not_applicable": {"matmul": "planned"}}, "accepted"),
        (with_b("passed"), {}, "incomplete"),
        (with_b("PASS"), {}, "incomplete"),
        (with_b(""), {}, "incomplete"),
        # The plan excuses absence and could_not_run, never a failure that was seen.
        (GOOD[:1], {"not_applicable": {"matmul": "planned"}}, "accepted"),
        (with_b("could_not_run"), {"not_applicable": {"matmul": "planned"}}, "accepted"),
        (with_b("fail"), {"not_applicable": {"matmul": "planned"}}, "rejected"),
        (with_b("degraded"), {"not_applicable": {"matmul": "planned"}, "degraded": "reject"}, "accepted"),
        # A second result of the same check does not cure the first one.
        ([*with_b("fail"), GOOD[2]], {}, "rejected"),
        ([*with_b("could_not_run"), GOOD[2]], {}, "incomplete"),
        # Everything excused shows nothing.
        ([], {"not_applicable": {"count": "planned", "matmul": "planned"}}, "incomplete"),
        # Not required: reported, not counted. Required by its own word: counted.
        ([*GOOD, make_check("extra", "fail", "why", required=False)], {}, "accepted"),
        ([*GOOD, make_check("extra", "could_not_run", "why", required=False)], {}, "accepted"),
        ([*GOOD, make_check("extra", "fail", "why")], {}, "rejected"),
        # Required by the list, whatever the result says of itself.
        ([*GOOD[:2], make_check("matmul", "fail", "why", gpu=B, required=False)], {}, "rejected"),
    ],
)
def test_the_table(results: list[Check], policy: dict[str, object], verdict: str) -> None:
    assert judge(results, **policy)["verdict"] == verdict  # type: ignore[arg-type]


def test_nothing_required_and_nothing_run_is_incomplete() -> None:
    assert judge([], required=[])["verdict"] == "incomplete"
    assert judge([make_check("extra", "pass", required=False)], required=[])["verdict"] == "incomplete"


@pytest.mark.parametrize(("backend", "degraded"), [("gpu", "accept"), ("", "accept"), ("cuda", "ignore"), ("cuda", "")])
def test_a_misspelt_policy_is_an_error(backend: str, degraded: str) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        judge(GOOD, backend=backend, degraded=degraded)


def test_the_reason_names_the_first_cause_its_gpu_and_its_remedy() -> None:
    failed = judge([make_check("slow", "could_not_run", "later"), *with_b("fail", "3 of 9 are wrong", "replace it"), make_check("more", "fail", "x")])
    assert failed["reason"] == "matmul on GPU 0000:1b:00.0 (GPU-b) failed: 3 of 9 are wrong; 1 more: more"
    assert failed["remedy"] == "replace it"
    assert judge(with_b("could_not_run", "hung", "wait"))["reason"] == "matmul on GPU 0000:1b:00.0 (GPU-b) could not run: hung"
    assert judge(with_b("could_not_run", "hung", "wait"))["remedy"] == "wait"
    assert judge(GOOD[:1])["reason"] == "matmul on GPU 0000:1a:00.0 (GPU-a) could not run: there is no result of it; 1 more: matmul"
    weak = judge(with_b("degraded", "no floor known", "add one"), degraded="reject")
    assert weak["reason"] == "matmul on GPU 0000:1b:00.0 (GPU-b) is degraded, which smoke_test_degraded rejects: no floor known"
    assert weak["remedy"] == "add one"


def test_the_reason_of_a_good_host_counts_and_names_what_is_degraded() -> None:
    assert judge(GOOD)["reason"] == "3 of 3 required checks ran, none failed"
    assert judge(with_b("degraded"))["reason"] == "3 of 3 required checks ran, none failed; 1 degraded: matmul"
    assert judge(GOOD, backend="cpu")["reason"] == "3 of 3 required checks ran, none failed; computed on the CPU, which says nothing about a GPU"
    assert judge(GOOD)["remedy"] is None


def test_many_causes_are_counted_by_name_and_cut() -> None:
    many = [make_check(f"check{number}", "fail", "why") for number in range(9)]
    assert judge([*many, make_check("check1", "fail", "why")])["reason"].endswith("9 more: check1 x2, check2, check3, check4, check5, check6, ...")
    assert judge(many[:8])["reason"].endswith("7 more: check1, check2, check3, check4, check5, check6, ...")
    assert judge(many[:7])["reason"].endswith("6 more: check1, check2, check3, check4, check5, check6")


def test_parts_of_one_gpu_each_need_a_result_of_their_own() -> None:
    """They have its bus id in common. A whole GPU is the same one whether a result tells its UUID or not."""
    parts = [Gpu(uuid=uuid, pci_bus_id="0000:1a:00.0") for uuid in ("MIG-1", "MIG-2")]
    required = [Requirement("matmul", part) for part in parts]
    results = [make_check("matmul", "pass", gpu=part) for part in parts]
    assert judge(results, required)["verdict"] == "accepted"
    assert judge(results[:1], required)["verdict"] == "incomplete"
    untold = make_check("matmul", "pass", gpu=Gpu(uuid=None, pci_bus_id="0000:1a:00.0"))
    assert judge([untold], [Requirement("matmul", A)])["verdict"] == "accepted"
    assert judge([untold], required)["verdict"] == "incomplete"


def test_what_is_required_twice_is_missing_once() -> None:
    assert len(judge([], [WANTED[0], WANTED[0]])["checks"]) == 1


def test_a_gpu_without_uuid_is_named_all_the_same() -> None:
    assert label("fabric", Gpu(uuid=None, pci_bus_id="0000:1a:00.0")) == "fabric on GPU 0000:1a:00.0 (UUID unknown)"


def test_what_was_changed_in_a_result_says_why() -> None:
    checks = judge(with_b("not_applicable", "MIG"))["checks"]
    assert checks[2]["status"] == "could_not_run"
    assert checks[2]["reason"] == "the test called itself not applicable, which only the plan may say beforehand (MIG)"
    assert judge(with_b("fine"))["checks"][2]["reason"] == "the test reported the unknown status 'fine'"
    excused = judge(with_b("could_not_run", "x", "y"), not_applicable={"matmul": "no such unit"})["checks"][2]
    assert (excused["status"], excused["reason"], excused["remedy"], excused["required"]) == ("not_applicable", "no such unit", None, False)
    agreed = judge(with_b("not_applicable", "x"), not_applicable={"matmul": "no such unit"})["checks"][2]
    assert (agreed["status"], agreed["reason"]) == ("not_applicable", "no such unit")
    missing = judge(GOOD[:1], not_applicable={"matmul": "no such unit"})["checks"][1:]
    assert [(c["status"], c["reason"], c["required"], c["gpu"]) for c in missing] == [("not_applicable", "no such unit", False, g) for g in (A, B)]


def test_a_result_without_a_reason_still_makes_a_sentence() -> None:
    assert judge(with_b("fail", None))["reason"].endswith("failed: no reason given")
    assert str(judge(with_b("not_applicable", None))["checks"][2]["reason"]).endswith("(no reason given)")


def test_the_results_given_are_not_altered() -> None:
    results = with_b("not_applicable")
    before = json.dumps(results)
    judge(results)
    assert json.dumps(results) == before


GPUS = st.sampled_from([None, A, B])
NAMES = st.sampled_from(["count", "matmul", "reduce"])
CHECKS = st.lists(
    st.builds(
        lambda name, status, gpu, required: make_check(name, status, "why", gpu=gpu, required=required),
        NAMES,
        st.sampled_from([*STATUSES, "odd"]),
        GPUS,
        st.booleans(),
    ),
    max_size=8,
)
REQUIRED = st.lists(st.builds(Requirement, NAMES, GPUS), max_size=6)
EXCUSES = st.dictionaries(NAMES, st.just("planned"), max_size=2)
BACKENDS = st.sampled_from(["cuda", "cpu"])
POLICIES = st.sampled_from(["accept", "reject"])


@given(CHECKS, REQUIRED, BACKENDS, POLICIES, EXCUSES)
def test_success_means_that_every_required_check_ran_and_passed(
    results: list[Check], required: list[Requirement], backend: str, degraded: str, excuses: dict[str, str]
) -> None:
    judged = evaluate(results, required, backend, degraded, excuses)
    assert judged["verdict"] in ("accepted", "simulated", "rejected", "incomplete")
    if judged["verdict"] in ("accepted", "simulated"):
        assert judged["verdict"] == ("simulated" if backend == "cpu" else "accepted")
        good = ("pass", "degraded") if degraded == "accept" else ("pass",)
        for name, gpu in required:
            if name not in excuses:
                mine = [c["status"] for c in results if c["name"] == name and c["gpu"] == gpu]
                assert mine and all(status in good for status in mine)
        assert any(c["status"] in good for c in results)
        assert not any(c["status"] == "fail" and c["required"] for c in results)


@given(CHECKS, REQUIRED, st.tuples(BACKENDS, POLICIES), EXCUSES, st.integers(0, 7))
def test_a_result_made_worse_never_helps(results: list[Check], required: list[Requirement], policy: tuple[str, str], excuses: dict[str, str], at: int) -> None:
    order = {"accepted": 0, "simulated": 0, "incomplete": 1, "rejected": 2}
    before = order[evaluate(results, required, *policy, excuses)["verdict"]]
    if at < len(results):
        worse = [*results[:at], {**results[at], "status": "fail"}, *results[at + 1 :]]
        assert order[evaluate(worse, required, *policy, excuses)["verdict"]] >= before  # type: ignore[arg-type]
        without = [*results[:at], *results[at + 1 :]]
        after = evaluate(without, required, *policy, excuses)["verdict"]
        if order[after] < before:
            # Only what was not good may be missed, and only where nothing asks for it or another result of it is there.
            assert results[at]["status"] not in ("pass",)


@given(CHECKS, REQUIRED, BACKENDS, POLICIES, EXCUSES)
def test_every_check_fits_the_contract_and_every_requirement_is_in_the_answer(
    results: list[Check], required: list[Requirement], backend: str, degraded: str, excuses: dict[str, str]
) -> None:
    judged = evaluate(results, required, backend, degraded, excuses)
    validator = jsonschema.Draft202012Validator(json.loads((SCHEMAS / "check.schema.json").read_text(encoding="utf-8")))
    for check in judged["checks"]:
        validator.validate(check)
    assert {(r.name, json.dumps(r.gpu)) for r in required} <= {(c["name"], json.dumps(c["gpu"])) for c in judged["checks"]}
