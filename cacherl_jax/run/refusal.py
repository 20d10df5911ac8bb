"""A user's mistake, said once and clearly.  Raised anywhere, caught at the top of a script only."""

import contextlib
import errno
import sqlite3
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
    except (OSError, sqlite3.OperationalError) as error:
        if not _is_full(error):
            raise
        print(
            f'no room left on the disk: {error}\nWhat was complete before is still there.\n'
            'What to do: make room and give the same command again; it continues',
            file=sys.stderr,
        )
        raise SystemExit(1) from None


def _is_full(error: Exception) -> bool:
    """Whether the system, or SQLite, says that a disk or a quota is used up."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return getattr(error, 'sqlite_errorcode', None) == sqlite3.SQLITE_FULL
