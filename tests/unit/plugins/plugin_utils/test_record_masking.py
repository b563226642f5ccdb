# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must not be in a record, in every place and form in which a site may have it; and that what tells something stays."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils.record import FACTS, PLAN, SMOKE_TEST, HostLog, Run, TaskEvent, build_record
from ansible_collections.rackready.gpu.plugins.plugin_utils.record_masking import MASK, plain_text, to_plain
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import facts_for
from tests.unit.plans import plan_for

SECRET = "hunter2hunter2"
NOW = datetime(2026, 12, 1, 4, 5, 6, tzinfo=UTC)
OPTIONS = {
    "proxies": {"http-proxy": f"http://{SECRET}@proxy.example:3128"},
    "log-driver": "splunk",
    "log-opts": {"splunk-token": SECRET, "splunk-format": "raw"},
    "registry-mirrors": [f"https://user:{SECRET}@mirror.example"],
    "max-concurrent-downloads": 3,
    "live-restore": True,
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"deb https://user:{SECRET}@mirror.example/debian trixie main", f"deb https://{MASK}@mirror.example/debian trixie main"),
        (f"https://{SECRET}@mirror.example/simple", f"https://{MASK}@mirror.example/simple"),
        (f"https://:{SECRET}@mirror.example/simple", f"https://{MASK}@mirror.example/simple"),
        (f"https://user:p@{SECRET}@mirror.example/", f"https://{MASK}@mirror.example/"),
        (f"a http://x:{SECRET}@h1/ and https://{SECRET}@h2:8443", f"a http://{MASK}@h1/ and https://{MASK}@h2:8443"),
        (f"python3 train.py --api-key={SECRET} --epochs=3", f"python3 train.py --api-key={MASK} --epochs=3"),
        (f"python3 train.py --hub-token {SECRET} --epochs 3", f"python3 train.py --hub-token {MASK} --epochs 3"),
        (f"username = u\npassword = {SECRET}\n", f"username = u\npassword = {MASK}\n"),
        (f'{{"identitytoken": "{SECRET}", "a": 1}}', f'{{"identitytoken": "{MASK}", "a": 1}}'),
        (f"https://h/v2/?token={SECRET}&scope=pull", f"https://h/v2/?token={MASK}&scope=pull"),
        (f"HF_TOKEN='{SECRET}' python3", f"HF_TOKEN='{MASK}' python3"),
    ],
)
def test_forms_of_secrets_in_texts(text: str, shown: str) -> None:
    assert to_plain(text) == to_plain({"x": [text]})["x"][0] == plain_text(plain_text(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://mirror.example:8443/a@b",
        "nvcr.io/nvidia/pytorch@sha256:" + "0" * 64,
        "docker://nvcr.io/nvidia/pytorch@sha256:" + "0" * 64,
        "the registry's token service answered 503: try again",
        "Secure Boot key",
        "write to admin@example.com, see https://example.com/a",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert to_plain(text) == text


@pytest.mark.parametrize("name", ["password", "HF_TOKEN", "client_secret", "ngc_api_key", "apikey", "Passphrase", "credentials", "private_key"])
def test_names_that_say_secret(name: str) -> None:
    assert to_plain({name: SECRET, "n": {name: [SECRET]}}) == {name: MASK, "n": {name: [MASK]}}


def test_environments_keep_their_names_alone() -> None:
    assert to_plain({"env": {"A": SECRET, "B": 1, "C": [SECRET], "D": None}}) == {"env": {"A": MASK, "B": MASK, "C": [MASK], "D": None}}


def test_the_engines_configuration_keeps_names_numbers_and_switches() -> None:
    shown = {
        "proxies": {"http-proxy": MASK},
        "log-driver": MASK,
        "log-opts": {"splunk-token": MASK, "splunk-format": MASK},
        "registry-mirrors": [MASK],
        "max-concurrent-downloads": 3,
        "live-restore": True,
    }
    plain = to_plain({"daemon_json": OPTIONS, "daemon_json_text": json.dumps(OPTIONS), "files": {"/etc/docker/daemon.json": json.dumps(OPTIONS)}})
    assert plain["daemon_json"] == shown
    assert json.loads(plain["daemon_json_text"]) == json.loads(plain["files"]["/etc/docker/daemon.json"]) == shown


@pytest.mark.parametrize("text", ['{"a": "' + SECRET, "[" * 100_000 + SECRET, "# " + SECRET])
def test_a_configuration_that_is_no_json_is_hidden_whole(text: str) -> None:
    assert to_plain({"/etc/docker/daemon.json": text}) == {"/etc/docker/daemon.json": MASK}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"Environment=PROXY_AUTH={SECRET}", f"Environment=PROXY_AUTH={MASK}"),
        (f'Environment="A=x {SECRET}" "B=k={SECRET}" C=1', f"Environment=A={MASK} B={MASK} C={MASK}"),
        (f"Environment=A=1 \\\n  B={SECRET}", f"Environment=A={MASK} B={MASK}"),
        (f'Environment="A={SECRET}', f"Environment={MASK}"),
        ("EnvironmentFile=/etc/default/docker", "EnvironmentFile=/etc/default/docker"),
        ("ExecStart=/usr/bin/dockerd -H fd://", "ExecStart=/usr/bin/dockerd -H fd://"),
    ],
)
def test_systemd_drop_ins(line: str, shown: str) -> None:
    for path in ("/etc/systemd/system/docker.service.d/proxy.conf", "/usr/lib/systemd/system/docker.service.d/vendor.conf"):
        assert to_plain({path: f"[Service]\n{line}\n"}) == {path: f"[Service]\n{shown}\n"}


def test_no_secret_of_the_inventory_or_of_the_host_gets_into_a_record() -> None:
    """A whole run whose inventory and host hold the secret wherever one can be."""
    facts = facts_for()
    facts["files"].update(
        {
            "/etc/docker/daemon.json": json.dumps({"log-opts": {"labels": SECRET}}),
            "/etc/apt/sources.list.d/site.list": f"deb https://{SECRET}@mirror.example/debian trixie main\n",
            "/etc/systemd/system/docker.service.d/proxy.conf": f'[Service]\nEnvironment="HTTPS_PROXY=http://proxy:3128" "X={SECRET}"\n',
        }
    )
    plan = plan_for(facts, docker_daemon_options=OPTIONS, smoke_test_env={"WANDB": SECRET, "NCCL_DEBUG": "INFO"})
    assert plan["refusals"] == []
    assert SECRET in json.dumps(plan)
    log = HostLog("h1", "site.yml", NOW, NOW)
    log.add(TaskEvent("ok", FACTS, None, "facts", NOW, False, {"ansible_facts": {"gpu_host": facts}}))
    log.add(TaskEvent("ok", PLAN, None, "plan", NOW, False, {"ansible_facts": {"gpu_plan": plan}}))
    invocation = {"module_args": {"env": {"WANDB": SECRET}}}
    log.add(TaskEvent("failed", SMOKE_TEST, None, "test", NOW, False, {"verdict": "incomplete", "reason": "x", "checks": [], "invocation": invocation}))
    log.add(TaskEvent("ok", "uri", None, "ask", NOW, True, {"invocation": {"module_args": {"name": f"https://{SECRET}@h/"}}}))
    record: Any = build_record(log, Run("20261201T040506Z-0123abcd", False, {"rackready": "0.1.0", "ansible": "2.19.14"}))
    assert SECRET not in json.dumps(record)
    assert record["plan"]["areas"]["smoke_test"]["desired"]["env"] == {"WANDB": MASK, "NCCL_DEBUG": MASK}
    assert record["plan"]["areas"]["docker"]["desired"]["daemon_json"]["features"] == {"cdi": True}


class Tagged(str):
    """Like Ansible's tagged text: a str, and not exactly one."""


def test_plain_types_only() -> None:
    plain = to_plain({Tagged("a"): [Tagged("ü"), float("nan"), float("inf"), 1.5, True, None, (1, 2)], "when": NOW, "bytes": "\udcff\ud800"})
    assert type(next(iter(plain))) is str
    assert type(plain["a"][0]) is str
    assert plain["a"] == ["ü", None, None, 1.5, True, None, [1, 2]]
    json.dumps(plain, allow_nan=False, ensure_ascii=False).encode("utf-8")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_anything_becomes_json_that_utf8_can_hold(value: Any) -> None:
    text = json.dumps(to_plain(value), allow_nan=False, ensure_ascii=False)
    assert to_plain(json.loads(text)) == json.loads(text.encode("utf-8"))
