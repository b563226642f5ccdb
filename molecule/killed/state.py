"""Everything that a run of site.yml can have left on a host, as one JSON object. Runs on the host, standard library only.

All file systems are looked at, so that what nobody thought of is found too; what may differ between two equal hosts is named below, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

# Path, or pattern of paths, to why two hosts in the same state differ there.
DIFFERS = {
    r"/(proc|sys|dev)": "the kernel's; modules and device nodes are asked for below",
    r"/run/(systemd|udev|log|lock|sshd.*|utmp|user)": "what systemd and logins keep while the host is up",
    r"/run/(docker|containerd|docker\.(pid|sock)|nvidia-.*/.*\.pid)": "process ids and sockets of running services, which are asked for as units",
    r"/run/gpu-host-sim": "the simulated hardware's own state: serial numbers of processes and times",
    r"/var/lib/(docker|containerd)": "the engine's store, whose names are random; images and containers are asked for below",
    r"/var/log": "logs tell of every attempt",
    r"/var/cache": "caches can be lost at any time",
    r"/var/lib/systemd": "times of timers and the random seed",
    r"/var/lib/dpkg/(status|.*-old|lock.*|triggers/Lock)": "dpkg is asked below; the others are its copies of yesterday and empty locks",
    r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-": "the copy of yesterday",
    r"/(etc|var/lib/dbus)/machine-id": "a random number",
    r"/root/\.(bash_history|cache)": "whoever logged in",
    r"(/var)?/tmp/systemd-private-.*": "named by the boot's random number",
    r"/tmp/apt-key\.\w+\.asc": "apt's own copy of a key that stands in a sources file; its child (user _apt) sometimes leaves it, killed or not",
    r"/root/\.ansible_async/j.*": "Ansible's own note of a job whose watcher was killed: a few hundred bytes that nothing reads again",
    r"/opt/gpu-host-sim/.*/__pycache__": "the simulation's, written when first needed",
}
_DIFFERS = re.compile("|".join(f"(?:{pattern})" for pattern in DIFFERS))
# Ansible names a copy that it keeps after process id and time.
_BACKUP = re.compile(r"\.\d+\.\d{4}-\d\d-\d\d@\d\d:\d\d:\d\d~$")
STAMP = "/var/lib/rackready/stamp.json"


def files() -> dict[str, list[Any]]:
    """Path to kind, mode, owner and content (of the stamp without its time) of everything in the file systems."""
    found: dict[str, list[Any]] = {}
    folders = ["/"]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if _DIFFERS.fullmatch(entry.path):
                    continue
                status = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                found[_BACKUP.sub(".BACKUP~", entry.path)] = [stat.filemode(status.st_mode), status.st_uid, status.st_gid, content(entry, status)]
    return found


def content(entry: os.DirEntry[str], status: os.stat_result) -> str | None:
    if entry.is_symlink():
        return str(Path(entry.path).readlink())
    if not stat.S_ISREG(status.st_mode):
        return None
    data = Path(entry.path).read_bytes()
    if entry.path == STAMP:
        data = json.dumps({key: value for key, value in json.loads(data).items() if key != "time"}).encode()
    return hashlib.sha256(data).hexdigest()


def lines(*command: str) -> list[str]:
    if shutil.which(command[0]) is None:
        return ["not installed"]
    return sorted(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())


def state() -> dict[str, Any]:
    """The whole state."""
    return {
        "files": files(),
        "packages": lines("dpkg-query", "--show", "--showformat", "${Package}:${Architecture} ${Version} ${db:Status-Abbrev}\n"),
        "audit": lines("dpkg", "--audit"),
        "held": lines("apt-mark", "showhold"),
        "automatic": lines("apt-mark", "showauto"),
        "enabled": lines("systemctl", "list-unit-files", "--plain", "--no-legend", "--state=enabled,masked"),
        "active": lines("sh", "-c", "systemctl list-units --plain --no-legend --state=active,failed --type=service,socket,path | cut -d' ' -f1,2"),
        "modules": sorted(path.name for path in Path("/sys/module").iterdir() if path.name.startswith(("nvidia", "nouveau"))),
        "devices": sorted(str(path) for path in Path("/dev").rglob("nvidia*")),
        "gpus": lines("nvidia-smi", "-L"),
        "images": lines("docker", "image", "ls", "--all", "--digests", "--no-trunc", "--format", "{{.Repository}} {{.Tag}} {{.Digest}} {{.ID}}"),
        "containers": lines("docker", "ps", "--all", "--no-trunc"),
        "volumes": lines("docker", "volume", "ls", "--quiet"),
    }


if __name__ == "__main__":
    print(json.dumps(state()))
