# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The payload asks torch for nothing that version 2.1 does not have, except where it looks first, and for nothing that has gone since.

Read from its text: no torch is needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_payload
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import exchange, products

FILES = sorted(Path(smoke_payload.__path__[0]).glob("*.py"))
RECORDED = Path(__file__).parents[3] / "fixtures/torch"
OLDEST, NEWEST = "2.1.2", "2.13.0"
# What may stand for torch, or for a part of it, in the payload's text.
ROOTS = {"torch": "torch", "place.torch": "torch", "dist": "torch.distributed"}
CAUGHT = {"AttributeError", "TypeError", "Exception"}


Names = dict[str, set[str]]


def recorded(version: str) -> Names:
    """The names of each module, as the file of a version has them."""
    names: Names = {}
    module = ""
    for line in (RECORDED / f"names-{version}.txt").read_text(encoding="utf-8").splitlines():
        if line.endswith(":"):
            module = line[:-1]
            names[module] = set()
        elif line.startswith(" "):
            names[module] |= set(line.split())
    return names


NAMES = recorded(OLDEST)
BY_VERSION = {OLDEST: NAMES, NEWEST: recorded(NEWEST)}


def dotted(node: ast.AST) -> str | None:
    """``a.b.c`` of an expression that is no more than that."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else None
    return None


def path_in_torch(node: ast.AST) -> str | None:
    """``torch.cuda.Event`` of an attribute that belongs to torch, whatever torch is called there."""
    words = dotted(node)
    for root, path in ROOTS.items():
        if words and words.startswith(root + "."):
            return path + words[len(root) :]
    return None


def exists(path: str, of: Names = NAMES) -> bool:
    """Whether a version has it. Attributes of what is no module (an operator's, a class's) are not known and not asked for."""
    words = path.split(".")
    known = [(of[module], words[at]) for at in range(1, len(words)) for module in [".".join(words[:at])] if module in of]
    return all(name in names or name.startswith("__") for names, name in known)


def looked_for(test: ast.AST) -> set[str]:
    """Paths that ``hasattr(torch.amp, "GradScaler")`` in a condition asks for."""
    found = set()
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and dotted(node.func) == "hasattr" and isinstance(node.args[1], ast.Constant):
            owner = path_in_torch(node.args[0]) or ROOTS.get(dotted(node.args[0]) or "")
            found.add(f"{owner}.{node.args[1].value!s}")
    return found


def is_caught(node: ast.Try) -> bool:
    """Whether a call that is not there would be caught."""
    kinds = [kind for handler in node.handlers for kind in ast.walk(handler.type or ast.Name("Exception")) if isinstance(kind, ast.Name)]
    return any(kind.id in CAUGHT for kind in kinds)


def uses(node: ast.AST, guarded: frozenset[str] = frozenset()) -> Iterator[tuple[str, bool]]:
    """Every path in torch that is used, and whether it is looked for first: within ``if hasattr(...)``, or in a ``try`` that catches its absence."""
    path = path_in_torch(node)
    if path:
        yield path, "*" in guarded or path in guarded
        return
    for field, value in ast.iter_fields(node):
        inside = guarded
        if field == "body" and isinstance(node, (ast.If, ast.IfExp)):
            inside = guarded | looked_for(node.test)
        elif field == "body" and isinstance(node, ast.Try) and is_caught(node):
            inside = guarded | {"*"}
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from uses(child, inside)


def unguarded(source: str, of: Names = NAMES) -> set[str]:
    """Paths that a version does not have and that are not looked for first."""
    return {path for path, guarded in uses(ast.parse(source)) if not guarded and not exists(path, of)}


@pytest.mark.parametrize("version", BY_VERSION)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_used_unasked_that_is_newer_than_2_1_or_has_gone_since(path: Path, version: str) -> None:
    assert unguarded(path.read_text(encoding="utf-8"), BY_VERSION[version]) == set()


def test_every_module_of_the_payload_is_read_and_in_those_that_compute_torch_is_found() -> None:
    using = {path.stem for path in FILES if list(uses(ast.parse(path.read_text(encoding="utf-8"))))}
    assert {path.stem for path in FILES} > using
    assert using == {"burn", "busbw", "exchange", "figures", "hosts", "identity", "pairs", "products", "rank", "repeats", "timing", "training"}


def bound(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(name, path in torch) of each name that a statement gives to torch or to a module of it."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            for name, value in zip(target.elts, node.value.elts, strict=True) if both else [(target, node.value)]:  # type: ignore[attr-defined]
                part = ROOTS.get(dotted(value) or "") or path_in_torch(value)
                if part in NAMES:
                    yield dotted(name) or "", part
    elif isinstance(node, ast.Import):
        yield from ((alias.asname or alias.name, alias.name) for alias in node.names if alias.name.partition(".")[0] == "torch")
    elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def renamed(source: str) -> set[tuple[str, str]]:
    """Names under which the use of a part of torch would not be found."""
    return {(name, part) for node in ast.walk(ast.parse(source)) for name, part in bound(node) if ROOTS.get(name) != part}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_torch_and_its_parts_go_by_no_other_name(path: Path) -> None:
    assert renamed(path.read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("torch, rank = place.torch, place.rank", set()),
        ("import torch.distributed as dist", set()),
        ("t = torch", {("t", "torch")}),
        ("cuda = place.torch.cuda", {("cuda", "torch.cuda")}),
        ("a, t = 1, place.torch", {("t", "torch")}),
        ("import torch as t", {("t", "torch")}),
        ("from torch.nn import parallel", {("parallel", "torch.nn.parallel")}),
        ("ones = torch.ones(3)", set()),
    ],
)
def test_which_names_of_torch_the_reading_finds(source: str, found: set[tuple[str, str]]) -> None:
    assert renamed(source) == found


def test_much_is_used_and_something_newer_is_looked_for() -> None:
    found = [use for path in FILES for use in uses(ast.parse(path.read_text(encoding="utf-8")))]
    assert len({path for path, _guarded in found}) > 60
    assert ("torch.amp.GradScaler", True) in found
    assert {"torch.cuda.Event", "torch.distributed.batch_isend_irecv", "torch.distributed.ReduceOp.MAX", "torch._scaled_mm"} <= {path for path, _ in found}


def test_types_that_are_found_by_name() -> None:
    kinds = [kind for kinds in exchange.KINDS.values() for kind in kinds]
    assert set(kinds) | set(products.TORCH_TYPES.values()) <= NAMES["torch"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("torch.amp.GradScaler('cuda')", {"torch.amp.GradScaler"}),
        ("place.torch.float4_e2m1fn_x2", {"torch.float4_e2m1fn_x2"}),
        ("dist.init_device_mesh_of_tomorrow()", {"torch.distributed.init_device_mesh_of_tomorrow"}),
        ("x = torch.accelerator.current_device_index()", {"torch.accelerator.current_device_index"}),
        ("if hasattr(torch.amp, 'GradScaler'):\n  torch.amp.GradScaler()\ntorch.amp.autocast", set()),
        ("if hasattr(torch.amp, 'GradScaler'):\n  pass\nelse:\n  torch.amp.GradScaler()", {"torch.amp.GradScaler"}),
        ("torch.amp.GradScaler() if hasattr(torch.amp, 'GradScaler') else None", set()),
        ("try:\n  torch.new_thing()\nexcept AttributeError:\n  torch.newer_thing()", {"torch.newer_thing"}),
        ("try:\n  torch.new_thing()\nexcept OSError:\n  pass", {"torch.new_thing"}),
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", {"torch.backends.cuda.matmul.fp32_precision"}),
        ("torch.zeros(3).mm(torch.ones(3)).of_tomorrow", set()),
    ],
)
def test_what_the_reading_finds(source: str, found: set[str]) -> None:
    assert unguarded(source) == found
