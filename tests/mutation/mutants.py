# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small errors to be made in a module on purpose: a condition turned, a check left out, a verdict softened. Each of them must be seen by a test.

Words for people are left alone, and so are annotations and defaults: what a wrong verdict can come from is what is changed.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

ORDERED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr}
# What a status must never turn into unseen.
STATUSES = {
    "FAIL": ("DEGRADED", "COULD_NOT_RUN"),
    "COULD_NOT_RUN": ("PASS", "FAIL"),
    "DEGRADED": ("PASS", "FAIL"),
    "PASS": ("FAIL",),
    "NOT_APPLICABLE": ("PASS",),
}
# Arguments without which a check means something else; the others are for people.
ARGUMENTS = ("required", "gpu")
# Fields of a node in which nothing happens when the code runs.
SILENT = ("annotation", "returns", "decorator_list", "args", "type_params", "type_comment")


@dataclass(frozen=True)
class Mutant:
    """One error: in which function or assignment of a module, the part that is replaced, and what the module is like with it."""

    module: str
    function: str
    line: int
    before: str
    after: str
    turn: int
    """Which of several alike in one function."""
    tree: Callable[[], ast.Module]

    def __str__(self) -> str:
        again = f" ({self.turn})" if self.turn > 1 else ""
        return f"{self.module}.{self.function}: {self.before} -> {self.after}{again}"

    def put_into(self, module: ModuleType) -> None:
        """Replace what runs in the module that is loaded: everybody who has imported the function gets the changed one."""
        tree = ast.fix_missing_locations(self.tree())
        target: Any = module
        for name in self.function.split("."):
            target = vars(target)[name]
        target = target.fget if isinstance(target, property) else getattr(target, "__func__", target)
        if isinstance(target, FunctionType):
            target.__code__ = _code(compile(tree, str(module.__file__), "exec"), self.function)
            return
        statements: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.Assign) and _assigned(node) == self.function]
        exec(compile(ast.Module(statements, []), str(module.__file__), "exec"), vars(module))
        for other in [other for name, other in sys.modules.items() if name.startswith("ansible_collections.")]:
            if vars(other).get(self.function) is target:
                setattr(other, self.function, vars(module)[self.function])


def _code(code: CodeType, name: str) -> CodeType:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    found = next((constant for constant in inner if constant.co_qualname == name), None)
    return found or next(_code(constant, name) for constant in inner if name.startswith(f"{constant.co_qualname}."))


def mutants_of(name: str, source: str) -> list[Mutant]:
    """Every error that is made in a module of this name."""
    tree = ast.parse(source)
    mutants: list[Mutant] = []
    seen: dict[str, int] = {}
    for function, unit in _units(tree):
        for change in _changes(unit):
            before, after = change.before or _words(change.old), change.after or _words(change.new)
            if before == after:
                continue
            key = f"{function} {before} {after}"
            seen[key] = seen.get(key, 0) + 1
            mutants.append(Mutant(name, function, getattr(change.old, "lineno", 0), before, after, seen[key], _swapped(tree, change)))
    return mutants


@dataclass(frozen=True)
class Change:
    """A part and what takes its place, with words for both where they are not the parts themselves."""

    old: ast.AST
    new: ast.AST
    before: str | None = None
    after: str | None = None


def _words(node: ast.AST) -> str:
    words = " ".join(ast.unparse(node).split())
    return words if len(words) <= 100 else f"{words[:60]} ... {words[-36:]}"


def _swapped(tree: ast.Module, change: Change) -> Callable[[], ast.Module]:
    def swapped() -> ast.Module:
        changed: ast.Module = _swap(tree, change.old, change.new)
        return changed

    return swapped


def _swap(node: Any, old: ast.AST, new: ast.AST) -> Any:
    """A copy of the tree with one node replaced."""
    if node is old:
        return new
    if not isinstance(node, ast.AST):
        return node
    clone = copy.copy(node)
    for field, value in ast.iter_fields(node):
        setattr(clone, field, [_swap(each, old, new) for each in value] if isinstance(value, list) else _swap(value, old, new))
    return clone


def _units(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Functions and methods by their names, and what the module assigns."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{inner.name}", inner) for inner in node.body if isinstance(inner, ast.FunctionDef))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield _assigned(node), node


def _assigned(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""


def _changes(unit: ast.stmt) -> Iterator[Change]:
    for node in _inside(unit):
        for change in (_conditions, _numbers, _statuses, _statements, _calls):
            yield from (Change(node, ast.copy_location(new, node)) for new in change(node))
        for at, element in enumerate(_elements(node)):
            shorter = copy.copy(node)
            shorter.elts = [*node.elts[:at], *node.elts[at + 1 :]]  # type: ignore[attr-defined]
            yield Change(node, shorter, _words(element), "(left out)")


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    for field, value in ast.iter_fields(node):
        if field in SILENT and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            # Subscripts at the left of types, and texts with something in them.
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr) and not (isinstance(node, ast.Subscript) and isinstance(child, ast.Tuple)):
                yield child
                yield from _inside(child)


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        yield from (ast.Constant(value) for value in (True, False))
        if len(node.ops) == 1 and type(node.ops[0]) in ORDERED:
            yield ast.Compare(node.left, [ORDERED[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        for at in range(len(node.values)):
            rest = node.values[:at] + node.values[at + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)


def _numbers(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        yield ast.Constant(node.value + 1 if isinstance(node.value, int) else node.value * 1.25)
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "any", "all"):
        other = {"min": "max", "max": "min", "any": "all", "all": "any"}[node.func.id]
        yield ast.Call(ast.Name(other, ast.Load()), node.args, node.keywords)


def _statuses(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield from (ast.Name(other, ast.Load()) for other in STATUSES.get(node.id, ()))


def _elements(node: ast.AST) -> list[ast.expr]:
    """Of a list or set each part may be left out, of a tuple only where it is not one of two or three values that belong together."""
    if isinstance(node, (ast.List, ast.Tuple)) and isinstance(node.ctx, ast.Load) and (isinstance(node, ast.List) or len(node.elts) > 3):
        return node.elts
    return node.elts if isinstance(node, ast.Set) else []


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """A statement that is there for what it does, an early end, a branch, a filter."""
    does = isinstance(node, (ast.AugAssign, ast.Continue, ast.Break)) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    if does or (isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Subscript, ast.Attribute))):
        yield ast.Pass()
    elif isinstance(node, ast.If) and isinstance(node.test, (ast.Name, ast.Call, ast.Attribute)):
        # Comparisons are turned by themselves.
        yield from (ast.If(ast.Constant(value), node.body, node.orelse) for value in (True, False))
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield ast.comprehension(node.target, node.iter, [], node.is_async)


def _calls(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg in ARGUMENTS:
                yield ast.Call(node.func, node.args, [other for other in node.keywords if other is not keyword])
