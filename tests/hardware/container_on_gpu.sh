#!/usr/bin/env bash
# Runs gpu_smoke_test by ansible-playbook against a real container on the real GPUs of a bare machine without a network, and then rackready-verify.
#
#   tests/hardware/container_on_gpu.sh ENGINE.tar.xz WHEELS RECORDS [TIER...]
#
# Without tiers: quick and accept.
# ENGINE holds eng/bin/{dockerd,docker,containerd,containerd-shim-runc-v2,runc} of Debian 13, WHEELS ansible-core and what it needs.
# The image is the machine's own file system with its PyTorch. The CDI specification is written here, since nvidia-ctk is not in the archive:
# the driver's folder and the device nodes, as nvidia-ctk lists them (tests/fixtures/h200/cdi.yaml). Changes no setting of the cards.
set -euo pipefail
engine=$1 wheels=$2 records=$3
shift 3
[ $# -gt 0 ] || set -- quick accept
cd "$(dirname "$(readlink -f "$0")")/../.."

step() { printf '== %s (%s s)\n' "$*" "$SECONDS"; }

step "engine"
tar -xJf "$engine" -C /opt
chmod +x /opt/eng/bin/*
export PATH="/opt/eng/bin:$PATH"
mkdir -p /etc/docker /etc/cdi
cat >/etc/docker/daemon.json <<'JSON'
{"features": {"cdi": true, "containerd-snapshotter": true}, "bridge": "none", "userland-proxy": false, "iptables": false, "ip6tables": false}
JSON
dockerd >/tmp/dockerd.log 2>&1 &
for _ in $(seq 60); do docker version >/dev/null 2>&1 && break; sleep 1; done
docker version --format 'engine {{.Server.Version}}' || { tail -20 /tmp/dockerd.log; exit 1; }

step "CDI specification"
python3 - <<'PY' >/etc/cdi/nvidia.yaml
import os, pathlib, subprocess
rows = subprocess.run(["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"], check=True, capture_output=True, text=True).stdout.split("\n")
gpus = [row.split(", ") for row in rows if row]
def node(path):
    device = os.stat(path).st_rdev
    return f"            - path: {path}\n              major: {os.major(device)}\n              minor: {os.minor(device)}\n"
print("---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:")
def device(name, nodes):
    print(f'    - name: "{name}"\n      containerEdits:\n        deviceNodes:\n' + "".join(nodes), end="")
for index, uuid in gpus:
    for name in (index, uuid):
        device(name, [node(f"/dev/nvidia{index}")])
device("all", [node(f"/dev/nvidia{index}") for index, _ in gpus])
print("containerEdits:\n    env:\n        - NVIDIA_VISIBLE_DEVICES=void\n        - LD_LIBRARY_PATH=/usr/local/nvidia/lib64\n    deviceNodes:")
shared = [path for path in ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl") if pathlib.Path(path).exists()]
print("".join(node(path).replace("            - path", "        - path").replace("              m", "          m") for path in shared), end="")
print("    mounts:\n        - hostPath: /usr/local/nvidia\n          containerPath: /usr/local/nvidia\n          options:")
print("".join(f"            - {option}\n" for option in ("ro", "nosuid", "nodev", "rbind", "rprivate")), end="")
PY

step "image"
printf '%s\n' --exclude=usr/local/cuda* --exclude=usr/share --exclude=usr/local/nvidia --exclude=opt/eng --exclude=opt/nvidia \
  bin lib lib64 sbin usr etc opt |
  python3 tests/hardware/image_of_itself.py /tmp/oci machine:itself "$(dirname "$(command -v python3)"):/usr/local/bin:/usr/bin:/bin"
step "image packed"
tar -C /tmp/oci -c . | docker load
rm -rf /tmp/oci
image=$(docker image inspect --format '{{index .RepoDigests 0}}' machine:itself)
echo "$image"

step "ansible"
python3 -m pip install -q --no-index --no-compile --find-links "$wheels" --target /tmp/ansible ansible-core
export PYTHONPATH=/tmp/ansible PATH="/tmp/ansible/bin:$PATH"

status=0
for tier in "$@"; do
  step "smoke test, tier $tier"
  ansible-playbook -i localhost, tests/hardware/smoke_in_container.yml -e "image=$image" -e "tier=$tier" \
    -e "{\"rackready_records_dir\": \"$records/$tier\", \"ansible_python_interpreter\": \"$(command -v python3)\"}" || status=$?
  cp "$records/$tier/localhost/latest.json" "$records/record-container-$tier.json"
done

step "rackready-verify, tier quick"
PYTHONPATH=collections python3 - <<'PY'
import pathlib
from ansible_collections.rackready.gpu.plugins.module_utils import verify_tool
tool = pathlib.Path(verify_tool.TOOL)
tool.parent.mkdir(parents=True, exist_ok=True)
tool.write_bytes(verify_tool.tool())
tool.chmod(0o755)
PY
alone=0
/usr/local/sbin/rackready-verify --tier quick --json >"$records/rackready-verify-quick.json" || alone=$?
step "rackready-verify ended with $alone"
[ "$alone" = 0 ] || status=$alone
step "done, exit status $status"
exit "$status"
