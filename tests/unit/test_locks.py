"""The lock files install with an old pip too, whatever is released after them."""

import pathlib
import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-newest.lock"])
def test_each_extra_that_a_locked_package_asks_for_is_locked(name: str) -> None:
    """pip 23 takes the newest `coverage[toml]` for unlocked although `coverage` is, and refuses it for want of a hash.

    That shows only once something newer than the lock has been released. What packages ask for is read from those
    that are installed here.
    """
    locked = [Requirement(line.split(" \\")[0]) for line in (ROOT / name).read_text().splitlines() if re.match(r"[A-Za-z0-9]", line)]
    extras = {canonicalize_name(requirement.name): requirement.extras for requirement in locked}
    asked = [
        (package, requirement)
        for package in extras
        for requirement in map(Requirement, _requires(package))
        if requirement.extras and not (requirement.marker and "extra" in str(requirement.marker))
    ]
    assert any(package == "pytest-cov" for package, _ in asked)
    missing = [
        f"{package} asks for {requirement}"
        for package, requirement in asked
        if not requirement.extras <= extras.get(canonicalize_name(requirement.name), set())
    ]
    assert missing == []


def _requires(package: str) -> list[str]:
    try:
        return metadata.requires(package) or []
    except metadata.PackageNotFoundError:  # for another platform, or another Python
        return []
