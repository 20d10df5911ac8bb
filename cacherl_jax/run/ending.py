"""How far a run has come, as its folder says.  Reads only: a run may go on while it is asked."""

import dataclasses
import enum
import json
import pathlib


class State(enum.StrEnum):
    """What a folder holds."""

    NEW = 'new'  # nothing that could be gone on with
    HALF_DONE = 'half done'  # a checkpoint; the run goes on from it
    PAUSED = 'paused'  # the same, after its watchdog ended it
    FINISHED = 'finished'  # a result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pause:
    """Why a watchdog ended a run."""

    step: int
    alarms: str
    evidence: pathlib.Path


def state_of(folder: pathlib.Path) -> State:
    """A run that a watchdog paused ends with code 0, as a finished one does: this tells them."""
    if (folder / 'result.json').exists():
        return State.FINISHED
    if pause_of(folder):
        return State.PAUSED
    return State.NEW if reached(folder) is None else State.HALF_DONE


def reached(folder: pathlib.Path) -> int | None:
    """Steps done up to the newest checkpoint; None where there is none yet."""
    names = (path.name.removeprefix('step-') for path in (folder / 'checkpoints').glob('step-*'))
    return max((int(name) for name in names if name.isdecimal()), default=None)


def pause_of(folder: pathlib.Path) -> Pause | None:
    """The pause that an unfinished run rests in; None where it has come past it, or had none."""
    done = reached(folder)
    evidence = sorted((folder / 'watchdog').glob('step-*.json'))
    if done is None or not evidence:
        return None
    told = json.loads(evidence[-1].read_text(encoding='utf-8'))
    if told['action'] != 'pause' or told['step'] < done:
        return None
    alarms = '; '.join(f'{alarm["name"]}: {alarm["message"]}' for alarm in told['alarms'])
    return Pause(step=told['step'], alarms=alarms, evidence=evidence[-1])


def why_unfinished(folder: pathlib.Path, code: int) -> str:
    """What to say of a run that ended with this code and without a result."""
    if code:
        return f'ended with code {code}'
    if pause := pause_of(folder):
        return f'paused by its watchdog at step {pause.step}: {pause.alarms}; see {pause.evidence}'
    return 'stopped before its end'
