# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Stand-ins of modprobe, rmmod, insmod, depmod, modinfo, update-initramfs and dracut: the real ones' messages and exit statuses.

They act on the simulated /sys/module only; a module of the outer machine counts as built in.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from .kernel import LICENSES, Kernel, ModuleError, underscored
from .state import NotBootedError


def modprobe(arguments: list[str]) -> int:
    """``modprobe [-a] [-r] [-v] [-q] [-n] NAME...``."""
    parser = argparse.ArgumentParser(prog="modprobe")
    parser.add_argument("-a", "--all", action="store_true")
    parser.add_argument("-r", "--remove", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-n", "--dry-run", "--show", action="store_true")
    parser.add_argument("-b", "--use-blacklist", action="store_true")
    parser.add_argument("-i", "--ignore-install", action="store_true")
    parser.add_argument("-S", "--set-version")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    kernel = Kernel(release=options.set_version)
    # Without -a the words after the first are parameters of the module.
    names = options.names if options.all or options.remove else options.names[:1]
    status = 0
    for name in names:
        try:
            if options.remove:
                _remove(kernel, name, options.verbose, options.dry_run)
            elif options.dry_run:
                if kernel.module_file(name) is None and underscored(name) not in [*kernel.store.read()["kernel_modules"], "nouveau"]:
                    raise ModuleError(f"Module {name} not found in directory /lib/modules/{kernel.release}")
            elif options.use_blacklist and kernel.blacklisted(underscored(name)):
                continue
            else:
                for loaded in kernel.load(name):
                    if options.verbose:
                        print(f"insmod {kernel.module_file(loaded) or loaded}")
        except ModuleError as error:
            status = 1
            if not options.quiet:
                kind = "FATAL" if "not found" in str(error) or "in use" in str(error) else "ERROR"
                print(f"modprobe: {kind}: {error}" + "." * ("in use" in str(error)), file=sys.stderr)
    return status


def _remove(kernel: Kernel, name: str, verbose: bool, dry_run: bool) -> None:
    state = kernel.store.read()
    if underscored(name) not in state["modules"]:
        # modprobe -r of a module that is not loaded succeeds; of one that nobody knows it fails.
        if kernel.module_file(name) is None and underscored(name) not in [*state["kernel_modules"], "nouveau"]:
            raise ModuleError(f"Module {name} not found")
        return
    if verbose:
        print(f"rmmod {underscored(name)}")
    if not dry_run:
        kernel.unload(name)


def rmmod(arguments: list[str]) -> int:
    """``rmmod [-v] NAME...``; -f is refused, as a kernel without forced unloading does."""
    names = [word for word in arguments if not word.startswith("-")]
    status = 0
    for name in names:
        try:
            Kernel().unload(name)
        except ModuleError as error:
            print(f"rmmod: ERROR: {error}", file=sys.stderr)
            status = 1
    return status


def insmod(arguments: list[str]) -> int:
    """``insmod FILE``."""
    path = Path(arguments[0])
    try:
        Kernel().load(path.name.split(".")[0])
    except ModuleError as error:
        print(f"insmod: ERROR: could not insert module {path}: {error}", file=sys.stderr)
        return 1
    return 0


def depmod(arguments: list[str]) -> int:
    """``depmod [-a] [RELEASE]``."""
    words = [word for word in arguments if not word.startswith("-")]
    Kernel().depmod(words[0] if words else None)
    return 0


def modinfo(arguments: list[str]) -> int:
    """``modinfo [-F FIELD] [-k RELEASE] NAME...``."""
    parser = argparse.ArgumentParser(prog="modinfo")
    parser.add_argument("-F", "--field")
    parser.add_argument("-k", "--set-version")
    parser.add_argument("-n", "--filename", action="store_const", const="filename", dest="field")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args(arguments)
    kernel = Kernel(release=options.set_version)
    status = 0
    for name in options.names:
        path = Path(name) if "/" in name else kernel.module_file(name)
        if path is None or not path.is_file():
            print(f"modinfo: ERROR: Module {name} not found.", file=sys.stderr)
            status = 1
            continue
        info = kernel.module_info(path)
        fields = {"filename": str(path), "version": info["version"], "supported": "external", "license": LICENSES[info["flavour"]], "name": info["name"]}
        fields["vermagic"] = f"{kernel.release} SMP preempt mod_unload"
        if options.field:
            if options.field in fields:
                print(fields[options.field])
        else:
            for field, text in fields.items():
                print(f"{field + ':':<16}{text}")
    return status


def _write_initramfs(name: str, root: Path = Path("/")) -> Path:
    """A text file that holds the hash of modprobe.d at this time."""
    digest = hashlib.sha256()
    for path in sorted((root / "etc/modprobe.d").glob("*.conf")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    image = root / "boot" / name
    image.parent.mkdir(exist_ok=True)
    image.write_text(f"stand-in of an initramfs by the rackready lab\nmodprobe.d sha256 {digest.hexdigest()}\n", encoding="utf-8")
    return image


def update_initramfs(arguments: list[str]) -> int:
    """``update-initramfs -u|-c [-k RELEASE|all]``."""
    print(f"update-initramfs: Generating {_write_initramfs(f'initrd.img-{Kernel().release}')}")
    return 0


def dracut(arguments: list[str]) -> int:
    """``dracut [--force] [--regenerate-all] [--kver RELEASE]``: without --force it leaves an image that is there alone, and fails."""
    release = arguments[arguments.index("--kver") + 1] if "--kver" in arguments else Kernel().release
    name = f"initramfs-{release}.img"
    if (Path("/boot") / name).exists() and not {"-f", "--force", "--regenerate-all"} & set(arguments):
        print(f"dracut: Will not override existing initramfs (/boot/{name}) without --force", file=sys.stderr)
        return 1
    _write_initramfs(name)
    return 0


TOOLS = {"modprobe": modprobe, "rmmod": rmmod, "insmod": insmod, "depmod": depmod, "modinfo": modinfo, "update-initramfs": update_initramfs, "dracut": dracut}


def main(name: str, arguments: list[str]) -> int:
    """Run the tool of that name."""
    try:
        return TOOLS[name](arguments)
    except NotBootedError as error:
        print(f"{name}: ERROR: {error}", file=sys.stderr)
        return 1
