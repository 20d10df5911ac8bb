"""Work in lanes: one after the other within a lane, side by side between lanes."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Lane = TypeVar('Lane')


def in_lanes(work: Callable[[Lane], None], lanes: Sequence[Lane]) -> None:
    """Does all the work; an exception of the first lane that failed is raised here at the end."""
    if len(lanes) <= 1:
        for lane in lanes:
            work(lane)
        return
    raised: dict[int, BaseException] = {}

    def follow(number: int) -> None:
        try:
            work(lanes[number])
        except BaseException as error:  # noqa: BLE001  raised again below, in the caller's thread
            raised[number] = error

    threads = [threading.Thread(target=follow, args=(n,), daemon=True) for n in range(len(lanes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[min(raised)]
