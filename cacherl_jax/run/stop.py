"""A polite end: the first SIGTERM or Ctrl-C asks to save and leave, a second one ends it."""

import signal
import sys
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def listen_for_stop() -> Callable[[], bool]:
    """Installs the handlers; the function returned says whether a stop was asked for."""
    asked: list[int] = []
    former = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def ask(number, frame):
        asked.append(number)
        for each, handler in former.items():
            signal.signal(each, handler)

    for number in STOP_SIGNALS:
        signal.signal(number, ask)
    return lambda: bool(asked)


def leave_if(asked: bool, where: str) -> None:
    """Ends the process without an error."""
    if asked:
        print(f'stopped {where}', file=sys.stderr)
        raise SystemExit(0)
