# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of the inventory: what is taken, and the one sentence for each mistake."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils import request
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import plans

CATALOG = load()
_LAYOUT = '"off" (in quotes, or YAML reads it as false) or a list of {gpus, instances}.'


def mistakes(variables: dict[str, Any]) -> list[str]:
    with pytest.raises(request.RequestError) as caught:
        request.parse(variables, CATALOG)
    return caught.value.sentences


def test_nothing_asked_is_the_default_release() -> None:
    asked = request.parse({}, CATALOG)
    assert asked.release == "2026.11-longterm"
    assert asked.expected is None
    assert asked.mig_layout == ()
    assert asked.smoke_ulimits == ("memlock=-1", "stack=67108864", "nofile=65536:65536")
    assert asked.lock is None
    assert asked.pin_for == ("debian-13/x86_64",)


def test_without_jsonschema_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "jsonschema", None)
    request._validator.cache_clear()
    [sentence] = mistakes({"gpu_stack_release": "2026.11-longterm"})
    assert "jsonschema is missing on the controller" in sentence
    assert "pip install jsonschema" in sentence


def test_everything_asked_arrives() -> None:
    asked = request.parse(
        {
            "gpu_expected": {"model": "h100-sxm5-80gb", "count": 8},
            "mig_layout": [{"gpus": [0, "GPU-1"], "instances": {"1g.10gb+me": 1, "3g.40gb": 1}}],
            "nvidia_driver_branch": 580,
            "nvidia_driver_version": "580.178.04",
            "nvidia_driver_flavour": "open",
            "docker_daemon_options": {"live-restore": True},
            "smoke_test_env": {"NCCL_DEBUG": "INFO", "A": 1, "B": True},
            "rackready_mirror": {"packages": {"nvidia-cuda": "https://mirror.example/cuda"}, "images": {"nvcr.io": "registry.example:5000"}},
            "rackready_lock": plans.lock(),
        },
        CATALOG,
    )
    assert asked.expected == request.Expected("h100-sxm5-80gb", 8)
    assert asked.driver_branch == "580"
    assert asked.smoke_env == {"NCCL_DEBUG": "INFO", "A": "1", "B": "true"}
    assert asked.mirror_images == {"nvcr.io": "registry.example:5000"}
    assert asked.lock is not None


def test_other_peoples_variables_are_left_alone() -> None:
    request.parse(
        {"docker_users": ["me"], "docker_deamon_options": {}, "docker": {}, "nvidia": 1, "image": 1, "ansible_user": "root", "gpu": 1, "smoke": 1}, CATALOG
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gpu_stack_relase", "gpu_stack_release"),
        ("nvidia_driver_flavor", "nvidia_driver_flavour"),
        ("mig_layouts", "mig_layout"),
        ("smoke_test_ulimit", "smoke_test_ulimits"),
        ("docker_daemon_option", "docker_daemon_options"),
        ("rackready_mirrors", "rackready_mirror"),
        ("gpu_stack", "gpu_stack_release"),
        ("pytorch_image", "pytorch_image_ref"),
        ("docker_daemon", "docker_daemon_options"),
        ("gpu_expcted", "gpu_expected"),
        ("pytorch_img_ref", "pytorch_image_ref"),
        ("nvidiadriver_version", "nvidia_driver_version"),
        ("smoketest_ulimits", "smoke_test_ulimits"),
        ("GPU_EXPECTED", "gpu_expected"),
        ("Mig_Layout", "mig_layout"),
    ],
)
def test_an_unknown_name_is_refused_with_the_near_one(name: str, near: str) -> None:
    assert mistakes({name: "x"}) == [f"{name} is not a variable of rackready, so it would have no effect; did you mean {near}?"]


@pytest.mark.parametrize("name", ["mig", "nvidia_driver", "nvidia_container_toolkit", "smoke_test", "rackready", "host_tuning"])
def test_a_bare_prefix_is_refused(name: str) -> None:
    assert mistakes({name: "x"})[0].startswith(f"{name} is not a variable of rackready")


@pytest.mark.parametrize(
    ("kind", "name", "address"),
    [
        ("packages", "nvidia-cuda", "https://me:hunter2@mirror.example/cuda"),
        ("packages", "nvidia-cuda", "https://hunter2@mirror.example/cuda"),
        ("images", "nvcr.io", "me:hunter2@registry.example:5000"),
        ("images", "nvcr.io", "https://me:hunter2@registry.example"),
    ],
)
def test_a_login_in_a_mirrors_address_is_refused_and_not_repeated(kind: str, name: str, address: str) -> None:
    sentences = mistakes({"rackready_mirror": {kind: {name: address}}, "smoke_test_tier": "slow"})
    assert len(sentences) == 2
    assert sentences[0].startswith(f"rackready_mirror.{kind}.{name} has a user name or password in it")
    assert "auth.conf.d" in sentences[0] or "docker login" in sentences[0]
    assert "hunter2" not in str(sentences)


@pytest.mark.parametrize(
    "variables",
    [
        {"gpu_expected": {"model": "h100-sxm5-80gb", "count": 8.0}},
        {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 1.0}}]},
        {"mig_layout": [{"gpus": [0.0], "instances": {"1g.10gb": 1}}]},
    ],
)
def test_a_number_with_a_point_counts_nothing(variables: dict[str, Any]) -> None:
    assert "whole number" in mistakes(variables)[0] or "text" in mistakes(variables)[0]


def test_an_unknown_name_that_is_near_nothing() -> None:
    assert mistakes({"rackready_zzzzzzzz": 1}) == ["rackready_zzzzzzzz is not a variable of rackready, so it would have no effect."]


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"nvidia_driver_flavour": "opne"}, 'nvidia_driver_flavour is "opne", but must be one of open, proprietary.'),
        (
            {"nvidia_driver_version": 580.65},
            'nvidia_driver_version is the number 580.65, but must be text: write it in quotes ("580.65"), or YAML takes away zeros at its end.',
        ),
        ({"gpu_stack_release": 2026}, 'gpu_stack_release is the number 2026, but must be text: write it in quotes ("2026").'),
        (
            {"nvidia_container_toolkit_version": 1.20},
            'nvidia_container_toolkit_version is the number 1.2, but must be text: write it in quotes ("1.2"), or YAML takes away zeros at its end.',
        ),
        (
            {"nvidia_container_toolkit_version": "1.20"},
            'nvidia_container_toolkit_version is "1.20", but does not look like a toolkit version such as "1.20.0".',
        ),
        ({"nvidia_driver_branch": 580.0}, "nvidia_driver_branch is 580.0, but must be a whole number or text."),
        ({"nvidia_driver_branch": None}, "nvidia_driver_branch is null, but must be a whole number or text."),
        ({"nvidia_driver_branch": True}, "nvidia_driver_branch is true, but must be a whole number or text."),
        ({"nvidia_driver_drain": None}, "nvidia_driver_drain is null, but must be true or false."),
        ({"docker_source": True}, "docker_source is true, but must be one of docker, distribution."),
        ({"gpu_stack_release": ""}, f'gpu_stack_release is "", but must be one of {", ".join(sorted(CATALOG.releases))}.'),
        ({"pytorch_image_ref": ""}, 'pytorch_image_ref is "", but does not look like a full image reference such as nvcr.io/nvidia/pytorch:26.07-py3.'),
        ({"rackready_records_dir": ""}, 'rackready_records_dir is "", but must not be empty.'),
        ({"rackready_pin_for": []}, "rackready_pin_for is [], but must have at least one entry."),
        ({"gpu_expected": ""}, 'gpu_expected is "", but must be a mapping.'),
        ({"gpu_expected": {}}, "gpu_expected is {}, but must have model and count."),
        ({"gpu_expected": {"model": "h100-sxm5-80gb", "count": -1}}, "gpu_expected.count is -1, but must be 1 or more."),
        ({"gpu_expected": {"model": "h100-sxm5-80gb", "count": 10**30}}, f"gpu_expected.count is {10**30}, but must be 64 or less."),
        ({"gpu_expected": {"model": "h100-sxm5-80gb", "count": "8"}}, 'gpu_expected.count is "8", but must be a whole number.'),
        ({"gpu_expected": {"model": "h100-sxm5-80gb", "count": True}}, "gpu_expected.count is true, but must be a whole number."),
        (
            {"docker_daemon_options": {"data-root": ""}},
            'docker_daemon_options.data-root is "", but must be an absolute path: the engine would not start with it.',
        ),
        ({"smoke_test_env": {"A=B": "x"}}, 'smoke_test_env is "A=B", but does not look like the name of a variable such as NCCL_DEBUG.'),
        ({"smoke_test_env": {"A": None}}, "smoke_test_env.A is null, but must be text or a whole number or true or false."),
        # What sites put secrets into is not repeated: these sentences are written into records.
        ({"smoke_test_env": [{"name": "HF_TOKEN", "value": "hunter2"}]}, "smoke_test_env is a list, but must be a mapping."),
        ({"smoke_test_env": "HF_TOKEN hunter2"}, "smoke_test_env is text, but must be a mapping."),
        ({"smoke_test_env": {"A": ["hunter2"]}}, "smoke_test_env.A is a list, but must be text or a whole number or true or false."),
        ({"docker_daemon_options": [{"log-opts": {"x": "hunter2"}}]}, "docker_daemon_options is a list, but must be a mapping."),
        ({"gpu_tenants": [{"password": "hunter2"}]}, "gpu_tenants[0] is a mapping, but must have name."),
        ({"nvidia_driver_version": "580"}, 'nvidia_driver_version is "580", but does not look like a driver version such as "580.178.04".'),
        ({"nvidia_driver_branch": 58}, "nvidia_driver_branch is 58, but must be 100 or more."),
        ({"nvidia_driver_branch": "five"}, 'nvidia_driver_branch is "five", but does not look like a driver branch such as 580.'),
        ({"nvidia_driver_reboot_ok": "yes"}, 'nvidia_driver_reboot_ok is "yes", but must be true or false.'),
        ({"mig_layout": False}, 'mig_layout is false, but must be "off" (in quotes, or YAML reads it as false) or a list of {gpus, instances}.'),
        ({"mig_layout": True}, f"mig_layout is true, but must be {_LAYOUT}"),
        ({"mig_layout": None}, f"mig_layout is null, but must be {_LAYOUT}"),
        ({"mig_layout": ""}, f'mig_layout is "", but must be {_LAYOUT}'),
        ({"mig_layout": []}, f"mig_layout is [], but must be {_LAYOUT}"),
        ({"mig_layout": [{"gpus": [], "instances": {"1g.10gb": 1}}]}, "mig_layout[0].gpus is [], but must have at least one entry."),
        ({"mig_layout": [{"gpus": [-1], "instances": {"1g.10gb": 1}}]}, "mig_layout[0].gpus[0] is -1, but must be 0 or more."),
        ({"mig_layout": [{"gpus": "all", "instances": {}}]}, "mig_layout[0].instances is {}, but must have at least one entry."),
        ({"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 0}}]}, "mig_layout[0].instances.1g.10gb is 0, but must be 1 or more."),
        ({"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": "7"}}]}, 'mig_layout[0].instances.1g.10gb is "7", but must be a whole number.'),
        ({"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 9}}]}, "mig_layout[0].instances.1g.10gb is 9, but must be 7 or less."),
        (
            {"mig_layout": [{"gpus": "all", "instances": {"small": 1}}]},
            'mig_layout[0].instances is "small", but does not look like a MIG profile such as 1g.10gb.',
        ),
        (
            {"mig_layout": [{"gpus": "all", "instances": {"1c.3g.40gb": 1, "2c.3g.40gb": 1}}]},
            'mig_layout[0].instances is "1c.3g.40gb", but compute instances are not supported yet: ask for the whole GPU instance 3g.40gb.',
        ),
        ({"mig_layout": [{"gpus": "all"}]}, 'mig_layout[0] is {"gpus": "all"}, but must have gpus and instances.'),
        ({"gpu_expected": "h100"}, 'gpu_expected is "h100", but must be a mapping.'),
        (
            {"gpu_expected": {"model": "h100-sxm5-80gb", "count": 8, "size": 1}},
            'gpu_expected is {"model": "h100-sxm5-80gb", "count": 8, "size": 1}, but may only have model, count.',
        ),
        ({"gpu_expected": {"model": "h100-sxm5-80gb", "count": 0}}, "gpu_expected.count is 0, but must be 1 or more."),
        (
            {"smoke_test_ulimits": ["memlock:1"]},
            'smoke_test_ulimits[0] is "memlock:1", but does not look like a limit such as "memlock=-1" or "nofile=65536:65536".',
        ),
        (
            {"pytorch_image_ref": "nvcr.io/nvidia/pytorch"},
            'pytorch_image_ref is "nvcr.io/nvidia/pytorch", but does not look like a full image reference such as nvcr.io/nvidia/pytorch:26.07-py3.',
        ),
        (
            {"gpu_stack_release": "2020.01-old"},
            'gpu_stack_release is "2020.01-old", but must be one of 2026.11-legacy, 2026.11-longterm, 2026.11-newest, 2026.11-production, 2026.11-torch28.',
        ),
        (
            {"gpu_expected": {"model": "jetson-agx-orin", "count": 1}},
            'gpu_expected.model is "jetson-agx-orin", and Jetson is not supported: its driver is part of NVIDIA\'s system image for the board and no package '
            "of the driver repositories fits.",
        ),
        (
            {"rackready_mirror": {"packages": {"cuda": "https://x"}}},
            "rackready_mirror.packages.cuda is not a package repository; the repositories are docker-ce, epel, nvidia-container-toolkit, nvidia-cuda.",
        ),
        (
            {"nvidia_driver_branch": 595, "nvidia_driver_version": "580.178.04"},
            "nvidia_driver_version is 580.178.04, which is not of nvidia_driver_branch 595: set one of the two.",
        ),
    ],
)
def test_a_wrong_value_is_one_sentence(variables: dict[str, Any], sentence: str) -> None:
    assert mistakes(variables) == [sentence]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("h100-sxm5", "did you mean h100-sxm5-80gb or h100-sxm5-64gb or h100-sxm5-94gb or h100-sxm5-96gb?"),
        ("h200-sxm5-141gb", "did you mean h200-sxm-141gb or "),
    ],
)
def test_a_wrong_model_names_those_that_are_alike(model: str, words: str) -> None:
    assert words in mistakes({"gpu_expected": {"model": model, "count": 8}})[0]


def test_a_model_that_is_like_no_other_names_all() -> None:
    sentence = mistakes({"gpu_expected": {"model": "voodoo", "count": 8}})[0]
    assert all(slug in sentence for slug in CATALOG.gpus)


def test_all_mistakes_are_told_at_once() -> None:
    assert len(mistakes({"mig_layot": 1, "smoke_test_tier": "slow", "docker_source": 3})) == 3


def test_a_damaged_lock_says_where_and_how_to_write_it_again() -> None:
    lock = plans.lock()
    lock["images"][plans.IMAGE]["index"] = "latest"
    sentence = mistakes({"rackready_lock": lock})[0]
    assert f"images.{plans.IMAGE}.index" in sentence
    assert sentence.endswith("write it again with playbooks/pin.yml.")


@pytest.mark.parametrize(
    ("lock", "kind"), [(None, "empty"), ([], "a list"), ("text", "a text"), (1, "a number"), (float("inf"), "a number"), (True, "a truth value")], ids=str
)
def test_a_lock_of_another_type_is_named_by_its_type(lock: Any, kind: str) -> None:
    assert mistakes({"rackready_lock": lock}) == [
        f"rackready_lock is damaged at its top level (it is {kind} and not the mapping that pin.yml writes): write it again with playbooks/pin.yml."
    ]


@pytest.mark.parametrize("lock", [None, [], "text", {}, {"schema": 2}, float("inf")], ids=str)
def test_a_lock_that_is_none_says_how_to_write_it_again(lock: Any) -> None:
    [sentence] = mistakes({"rackready_lock": lock})
    assert sentence.startswith("rackready_lock is damaged at its top level (")
    assert sentence.endswith("): write it again with playbooks/pin.yml.")


def test_a_key_of_the_lock_that_was_cut_is_found_before_apt_finds_it() -> None:
    lock = plans.lock()
    cut = lock["repositories"]["nvidia-cuda/debian-13/x86_64"]
    cut["key"] = cut["key"][:60]
    [sentence] = mistakes({"rackready_lock": lock})
    assert "damaged at repositories.nvidia-cuda/debian-13/x86_64.key (it is not the key whose SHA-256 is written beside it)" in sentence


def test_only_our_variables_are_read() -> None:
    class Lazy(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            assert name == "mig_layout", f"{name} was read"
            return super().__getitem__(name)

    assert request.ours(Lazy(mig_layout="off", other="{{ undefined }}")) == {"mig_layout": "off"}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(request.known_names()), anything, max_size=4))
def test_whatever_is_in_a_variable_ends_in_a_request_or_in_sentences(variables: dict[str, Any]) -> None:
    try:
        request.parse(variables, CATALOG)
    except request.RequestError as error:
        assert error.sentences
        assert all(sentence.endswith((".", "?")) for sentence in error.sentences)
