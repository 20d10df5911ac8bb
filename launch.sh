#!/usr/bin/env bash
# Runs everything.  The first call on a machine makes .venv and installs what this machine needs.
#
#   1. Train with the preset for laptops:      ./launch.sh train
#   2. See every setting:                      ./launch.sh train --help
#   3. Train a real model on a benchmark:      ./launch.sh train --preset smollm2-bfcl
#   4. Train on a GPU under SLURM:             sbatch --gpus=1 launch.sh train
#      Several processes as one run:           JAX_COORDINATOR_ADDRESS=auto srun launch.sh train \
#                                                --mesh.fsdp 16   (more: compose/joining.py)
#   5. Evaluate a finished run:                ./launch.sh evaluate --help
#   6. One HTML page of a run:                 ./launch.sh report runs/NAME
#   7. Settings, in a grid or searched, here,
#      on SLURM or on hosts; an ablation:      ./launch.sh sweep | ablate --help
#   8. Why episodes failed; two runs; people:  ./launch.sh diagnose | compare | correlate --help
#   9. The tests; the slow ones, one by one:   ./launch.sh test; ./launch.sh test -n 0 -m slow
#  10. Thoughts for demonstrations or a file:  ./launch.sh think --help
#  11. Benchmarks' gold, by their own verdict: ./launch.sh replay-gold
#  12. What runs forgot; what alarms they had:  ./launch.sh forgetting | watch --help
#
# CACHERL_VENV names another folder for the virtual environment.
# CACHERL_ACCELERATOR (cpu, cuda12 or tpu) overrules what is found on the machine.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[ -d "$here/cacherl_jax" ] || here="${SLURM_SUBMIT_DIR:?run launch.sh from the project folder}"
cd "$here"

command="${1:-}"
case "$command" in
  train | test | evaluate | report | sweep | ablate | think | compare | correlate | diagnose | \
    forgetting | watch | replay-gold) shift ;;
  '' | -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
  *) echo "no command named '$command'; there are: train test evaluate report sweep ablate think compare correlate diagnose forgetting watch replay-gold" >&2; exit 2 ;;
esac

# A TPU chip is a PCI device made by Google (0x1ae0); so is its network card, hence the device list.
has_tpu() {
  local device
  for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" 2>/dev/null)" = 0x1ae0 ] || continue
    case "$(cat "$device/device")" in
      0x0027 | 0x005e | 0x0056 | 0x0062 | 0x0063 | 0x006f | 0x0076) return 0 ;;
    esac
  done
  return 1
}

accelerator="${CACHERL_ACCELERATOR:-}"
if [ -z "$accelerator" ]; then
  accelerator=cpu
  if [ -e /proc/driver/nvidia/version ] || nvidia-smi >/dev/null 2>&1; then accelerator=cuda12
  elif has_tpu; then accelerator=tpu
  fi
fi

# install STAMP PIP-ARGUMENTS... : once for each content of the requirement files and each Python.
install() {
  local stamp="$venv/installed-$1" wanted
  shift
  wanted="$({ cat requirements*.txt; "$venv/bin/python" --version; echo "$@"; } | cksum)"
  [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2
  echo "$wanted" >"$stamp"
}

prepare() {
  if ! "$venv/bin/python" -c '' 2>/dev/null; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
      { echo "Python 3.11 or newer is needed, python3 is $(python3 --version)" >&2; exit 2; }
    echo "making $venv for $accelerator (a few minutes, once)" >&2
    python3 -m venv "$venv"
  fi
  local files=(-r requirements.txt)
  [ "$accelerator" = cpu ] || files+=(-r "requirements-$accelerator.txt")
  install run "${files[@]}"
  [ "$command" != test ] || install test "${files[@]}" -r requirements-dev.txt
  case " $command $* " in
    ' replay-gold '* | *' --preset smollm2-bfcl '* | *' --preset=smollm2-bfcl '* | *' bfcl '* | *' tau2 '*)
      install bench --no-deps -r requirements-bench.txt ;;
    ' sweep'*' --search '* | ' sweep'*' --where slurm '* | ' sweep'*' --where=slurm '*)
      install sweep -r requirements-sweep.txt ;;
  esac
}

venv="${CACHERL_VENV:-.venv}"
if command -v flock >/dev/null; then
  (flock 9 && prepare "$@") 9>"$venv.lock"   # jobs of one sweep start together
else
  prepare "$@"
fi

export PATH="$(cd "$venv" && pwd)/bin:$PATH"
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
if [ "$accelerator" = cpu ]; then
  export JAX_PLATFORMS="${JAX_PLATFORMS:-cpu}"
  # Measured: without it half of the time of large products goes to page faults.
  export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=8589934592}"
fi

case "$command" in
  train) exec python experiments/train.py "$@" ;;
  evaluate) exec python experiments/evaluate.py "$@" ;;
  report) exec python experiments/report.py "$@" ;;
  sweep | ablate) exec python "experiments/$command.py" "$@" ;;
  think) exec python experiments/think.py "$@" ;;
  compare | correlate | diagnose | forgetting | watch) exec python "experiments/$command.py" "$@" ;;
  replay-gold) exec python experiments/replay_gold.py "$@" ;;
  # Two files at a time: compiling keeps one core busy, not two.  `-n 0` has one process for all.
  test) exec python -m pytest -n 2 --dist loadfile "$@" ;;
esac
