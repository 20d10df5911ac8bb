"""ssh and SLURM for tests: programs of those names that do on this machine what is asked of them.

A host is a folder; what is sent to it runs there.  A queue is a folder as well; what is submitted
begins at once, as a process of its own.
"""

import os
import pathlib

SSH = """
while [ "$1" = -o ]; do shift 2; done
[ -d "$TEST_HOSTS/$1" ] || exit 255
cd "$TEST_HOSTS/$1" && exec bash -c "$2"
"""
BEGIN = """
export SLURM_JOB_ID=$1 SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0
export SLURM_LOCALID=0 SLURM_JOB_NODELIST=node
setsid bash "$(cat "$TEST_QUEUE/$1.script")" >"$TEST_QUEUE/$1.said" 2>&1 </dev/null &
echo $! >"$TEST_QUEUE/$1.pid"
"""
SBATCH = """
number=$((17 + $(ls "$TEST_QUEUE" | grep -c script)))
cp "$1" "$TEST_QUEUE/$number.sh"
echo "$TEST_QUEUE/$number.sh" >"$TEST_QUEUE/$number.script"
begin "$number"
echo "Submitted batch job $number"
"""
SRUN = """
while [ "${1:0:2}" = -- ]; do
  case "$1" in --output | --error) shift ;; esac
  shift
done
echo $$ >"$TEST_QUEUE/$SLURM_JOB_ID.run"
exec "$@"
"""
SACCT = """
echo 'JobID|State|NodeList'
for file in "$TEST_QUEUE"/*.pid; do
  state=COMPLETED
  kill -0 "$(cat "$file")" 2>/dev/null && state=RUNNING
  echo "$(basename "$file" .pid)|$state|node"
done
"""
SQUEUE = """
kill -0 "$(cat "$TEST_QUEUE/$3.pid")" 2>/dev/null && echo RUNNING
"""
SCONTROL = 'echo requeued >>"$TEST_QUEUE/$2.again"; begin "$2"\n'
PROGRAMS = {'ssh': SSH, 'begin': BEGIN, 'sbatch': SBATCH, 'srun': SRUN, 'sacct': SACCT}
PROGRAMS |= {'scontrol': SCONTROL, 'squeue': SQUEUE}

LAUNCH = """#!/bin/bash
while [ $# -gt 0 ]; do [ "$1" = --run-dir ] && folder="$2"; shift; done
mkdir -p "$folder" && cd "$folder"
echo x >>begun
echo "said in $PWD on '$JAX_PLATFORMS'"
"""
FINISH = "echo '{}' >result.json\n"
SAVE_AND_END = """
trap 'mkdir -p checkpoints/step-00000003; exit 0' TERM
touch ready
[ -e checkpoints ] || while true; do sleep 0.05; done
echo '{}' >result.json
"""


def write_program(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith('#!') else f'#!/bin/bash\n{text}')
    path.chmod(0o755)


def install(folder: pathlib.Path, monkeypatch, *names: str) -> None:
    """The programs of these names, before all others of the machine."""
    for name in names:
        write_program(folder / 'bin' / name, PROGRAMS[name])
    for kind in ('hosts', 'queue'):
        (folder / kind).mkdir(exist_ok=True)
        monkeypatch.setenv(f'TEST_{kind.upper()}', str(folder / kind))
    monkeypatch.setenv('PATH', f'{folder / "bin"}{os.pathsep}{os.environ["PATH"]}')
