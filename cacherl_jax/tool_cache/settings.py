"""What a tool cache may do."""

import dataclasses
from typing import Literal, get_args

from cacherl_jax.tool_cache.tiers import TierSettings

Mode = Literal['replay', 'read_through', 'record', 'live']


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolCacheSettings:
    """Where answers come from, and what is kept of them."""

    # replay never runs a tool; read_through runs it on a miss and stores the answer; record always
    # runs it and stores the answer; live always runs it, without a cache.
    mode: Mode = 'read_through'
    tiers: TierSettings = dataclasses.field(default_factory=TierSettings)
    stochastic: tuple[str, ...] = ()  # tools whose answers differ from call to call, by name
    draws: int = 1  # answers kept per call of such a tool
    entries: int = 1_000_000  # most that are kept; the longest unused leave first
    copies: int = 64  # states kept to go on from, of environments that can be copied; 0: none
    content_hash: str = ''  # demand a cache with this content; empty: any

    def __post_init__(self):
        if self.mode not in get_args(Mode):
            raise ValueError(f'mode must be one of {get_args(Mode)}, got {self.mode!r}')
        if self.draws < 1:
            raise ValueError(f'draws must be at least 1, got {self.draws}')
        if self.draws > 1 and not self.stochastic:
            raise ValueError(f'draws is {self.draws}, but stochastic names no tool')
        if self.copies < 0:
            raise ValueError(f'copies must be 0 or more, got {self.copies}')
        if self.entries < 1:
            raise ValueError(f'entries must be at least 1, got {self.entries}')

    def draws_of(self, name: str) -> int:
        """How many answers are kept for one call of this tool."""
        return self.draws if name in self.stochastic else 1
