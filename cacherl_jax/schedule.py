"""A number that changes during training.  A step in, a float out; no arrays, no randomness.

It is plain Python because some of these numbers decide shapes (how many rows come from a cache) and
none of them costs anything; what a compiled function needs is handed to it as an argument.
"""

import dataclasses
import math
from typing import Literal

Shape = Literal['constant', 'linear', 'cosine', 'piecewise']


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """With x = min(step / steps, 1): linear is s + (e − s) x, cosine e + (s − e) (1 + cos πx) / 2.

    constant: start, at every step.
    piecewise: straight lines from (0, start) through the points; the last value is held for ever.
    """

    start: float = 1.0  # value at step 0
    end: float | None = None  # value from `steps` on; linear and cosine only
    steps: int = 0  # training steps from start to end; linear and cosine only
    shape: Shape = 'constant'
    points: tuple[tuple[int, float], ...] = ()  # (step, value), later ones after; piecewise only

    def __post_init__(self):
        if self.shape not in Shape.__args__:
            raise ValueError(f'shape must be one of {Shape.__args__}, got {self.shape!r}')
        ramp = self.shape in ('linear', 'cosine')
        if ramp and (self.end is None or self.steps < 1):
            raise ValueError(
                f'a {self.shape} schedule needs end and steps >= 1, '
                f'got end={self.end}, steps={self.steps}'
            )
        if not ramp and (self.end is not None or self.steps != 0):
            raise ValueError(
                f'a {self.shape} schedule has no end (None) and no steps (0), '
                f'got end={self.end}, steps={self.steps}'
            )
        if (self.shape == 'piecewise') != bool(self.points):
            raise ValueError(
                'points belong to the piecewise shape and only to it, '
                f'got {self.shape!r} with {self.points}'
            )
        at = [0, *(step for step, _ in self.points)]
        if any(later <= earlier for earlier, later in zip(at, at[1:], strict=False)):
            raise ValueError(f'steps of points must rise from 1, got {at[1:]}')
        if not all(math.isfinite(value) for value in self.values):
            raise ValueError(f'values of a schedule must be finite, got {self.values}')

    @property
    def values(self) -> tuple[float, ...]:
        """The values it moves between: all of its range lies between the least and the largest."""
        end = () if self.end is None else (self.end,)
        return (self.start, *end, *(value for _, value in self.points))

    def at(self, step: int) -> float:
        """The value at a training step, counted from 0."""
        if step < 0:
            raise ValueError(f'a schedule begins at step 0, got {step}')
        if self.shape == 'constant':
            return float(self.start)
        if self.shape == 'piecewise':
            return _between(((0, self.start), *self.points), step)
        done = min(step / self.steps, 1.0)
        if self.shape == 'cosine':
            done = (1 - math.cos(math.pi * done)) / 2
        return float((1 - done) * self.start + done * self.end)


def _between(points: tuple[tuple[int, float], ...], step: int) -> float:
    """Straight lines through the points; held after the last."""
    for (earlier, low), (later, high) in zip(points, points[1:], strict=False):
        if step < later:
            return float(low + (high - low) * (step - earlier) / (later - earlier))
    return float(points[-1][1])
