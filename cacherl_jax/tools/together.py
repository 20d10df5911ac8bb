"""Tools asked once by a program of several processes: the first asks, all get the same results."""

import dataclasses
from collections.abc import Callable, Sequence

from cacherl_jax.processes import is_first, several, told
from cacherl_jax.tools.tool import Result, Status, Tier

Answers = Sequence[tuple[Result, ...]]  # the results of each turn


class Elsewhere:
    """Stands for a session that another process has open."""

    def answer(self, calls):
        raise RuntimeError('tools are asked by the first process alone')

    def close(self):
        """There is nothing to close here."""


def opened_on_first(open_session: Callable) -> Callable:
    """The same function where tools are asked; on other processes one that opens nothing."""
    return open_session if is_first() else opened_nowhere


def opened_nowhere(*_) -> Elsewhere:
    """Opens nothing."""
    return Elsewhere()


def asked_once(ask: Callable[[], Answers]) -> Answers:
    """What `ask` gives on the first process, on every process."""
    if not several():
        return ask()
    answers = told(lambda: [[vars(result) for result in turn] for turn in ask()])
    return [tuple(_result(fields) for fields in turn) for turn in answers]


def _result(fields: dict) -> Result:
    known = {'status': Status(fields['status']), 'tier': Tier(fields['tier'])}
    return dataclasses.replace(Result(**fields), **known)
