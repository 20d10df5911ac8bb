"""Work in lanes: one after the other within a lane, side by side between lanes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Lane = TypeVar('Lane')


def in_lanes(work: Callable[[Lane], None], lanes: Sequence[Lane]) -> None:
    """Does all the work; an exception of the first lane that failed is raised here at the end.

    The threads only wait for tools, each within its time limit, so they always come to an end.
    """
    if len(lanes) <= 1:
        for lane in lanes:
            work(lane)
        return
    with ThreadPoolExecutor(len(lanes)) as pool:
        under_way = [pool.submit(work, lane) for lane in lanes]
    for each in under_way:
        each.result()
