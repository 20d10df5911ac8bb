"""A user's mistake, said once and clearly.  Raised anywhere, caught at the top of a script only."""

import contextlib
import sys
from collections.abc import Iterator

EXIT_CODE = 2


class Refusal(Exception):
    """What came, what is allowed, what to do; shown without a traceback."""

    def __init__(self, came: str, *, allowed: str = '', remedy: str = ''):
        self.came, self.allowed, self.remedy = came, allowed, remedy
        lines = [came]
        if allowed:
            lines.append(f'Allowed: {allowed}')
        if remedy:
            lines.append(f'What to do: {remedy}')
        super().__init__('\n'.join(lines))


@contextlib.contextmanager
def refusing(*also: type[Exception]) -> Iterator[None]:
    """Ends the script with one message and code 2; serves as `with refusing():` and `@refusing()`.

    Around the reading of settings, `refusing(ValueError)` also covers what settings refuse.  Wider
    it would hide our own mistakes, which deserve their traceback.
    """
    try:
        yield
    except (Refusal, *also) as refusal:
        print(f'refused: {refusal}', file=sys.stderr)
        raise SystemExit(EXIT_CODE) from None
