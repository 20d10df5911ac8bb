"""Every setting of a run, composed of the settings that each module owns, and checked together."""

import dataclasses
import pathlib
from typing import Literal

from cacherl_jax.grpo.advantage import AdvantageSettings
from cacherl_jax.grpo.loss import LossSettings
from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.mesh import MeshSettings
from cacherl_jax.policy.lora import LoraSettings
from cacherl_jax.policy.numerics import NumericsSettings
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.rewards.facts import FactSettings
from cacherl_jax.rewards.final import FinalSettings
from cacherl_jax.rewards.honesty import HonestySettings
from cacherl_jax.rewards.hybrid import HybridSettings, WeightSettings
from cacherl_jax.rollout_cache.admission import AdmissionSettings
from cacherl_jax.rollout_cache.buffer import BufferSettings
from cacherl_jax.rollout_cache.curriculum import CurriculumSettings
from cacherl_jax.rollout_cache.mix import MixSettings, cached_rows
from cacherl_jax.run.watchdog import WatchdogSettings
from cacherl_jax.schedule import Schedule
from cacherl_jax.seat import RolloutSettings
from cacherl_jax.supervised.update import SupervisedSettings
from cacherl_jax.tasks.bfcl import BfclSettings
from cacherl_jax.tasks.tau2 import Tau2Settings
from cacherl_jax.tool_cache.settings import ToolCacheSettings
from cacherl_jax.tool_cache.thinning import ThinSettings
from cacherl_jax.tool_cache.tiers import TierSettings
from cacherl_jax.tools.execute import ExecuteSettings
from cacherl_jax.tools.tool import Tier

SUITES = ('research', 'trip', 'analysis')


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What is played to measure success; always live, with sampling of its own."""

    file: str = (
        ''  # JSON Lines of test tasks to play in place of the first ones; see tasks/listed.py
    )
    unseen: int = 16  # tasks of the test split, of each suite and level
    seen: int = 8  # tasks of the train split, of each suite and level
    samples: int = 1  # attempts at each task
    sampling: SamplingSettings = SamplingSettings(temperature=0.0)
    every: int = 0  # RL steps from one evaluation to the next; 0: only before RL and after it

    def __post_init__(self):
        for name in ('unseen', 'seen', 'samples', 'every'):
            if getattr(self, name) < (0 if name == 'every' else 1):
                raise ValueError(f'{name} must be positive, got {getattr(self, name)}')
        if self.samples > 1 and not self.sampling.temperature:
            raise ValueError(
                f'{self.samples} samples at temperature 0 are one and the same; '
                'raise evaluation.sampling.temperature'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionSettings:
    """How the tool cache is filled before RL, all of it by live execution."""

    demonstrations: bool = True  # the expert's calls on every training task
    samples: int = 1  # attempts of the supervised policy at every training task
    thin: ThinSettings = ThinSettings()  # what is left of it, to study thin caches

    def __post_init__(self):
        if self.samples < 0:
            raise ValueError(f'samples must be 0 or more, got {self.samples}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: a supervised start, then RL from the tool cache, then evaluation."""

    seed: int = 0
    run_dir: pathlib.Path = pathlib.Path('runs/small')  # everything the run writes
    starts: pathlib.Path | None = None  # a folder of supervised starts that runs share
    model: str = 'base'  # base (ships), smollm2, or a Hugging Face folder or .gguf file
    chat_template: str = (
        ''  # a Jinja file in place of the tokenizer's own; base: the one that ships
    )
    steps: int = 40  # RL steps
    groups: int = 8  # tasks a step
    refills: int = 0  # times a step plays other tasks in place of those whose attempts agree
    optimizer: Literal['adamw', 'muon'] = 'adamw'  # of RL
    learning_rate: float = 3e-4  # of RL, after five steps of warm-up
    decay_steps: int = 0  # RL steps over which the rate falls to a tenth; 0: it stays
    text_rows: int = 4  # rows a step for the language-model term
    text: Literal['lessons', 'general'] = (
        'general'  # the supervised stage's, or fresh invented ones
    )
    checkpoint_steps: int = 10  # RL steps between checkpoints
    mesh: MeshSettings = MeshSettings()
    numerics: NumericsSettings = NumericsSettings()
    lora: LoraSettings = LoraSettings()  # rank 0: all parameters are trained
    curriculum: CurriculumSettings = CurriculumSettings(tasks=32, order='uniform')
    bfcl: BfclSettings = BfclSettings()
    tau2: Tau2Settings = Tau2Settings()
    supervised: SupervisedSettings = SupervisedSettings(
        demonstrations=96, general=64, epochs=1, rows=8
    )
    collection: CollectionSettings = CollectionSettings()
    execute: ExecuteSettings = ExecuteSettings()
    tool_cache: ToolCacheSettings = ToolCacheSettings(mode='replay')
    decode: DecodeSettings = DecodeSettings(context_tokens=576, widths=(64, 320, 448, 576))
    sampling: SamplingSettings = SamplingSettings()
    rollout: RolloutSettings = RolloutSettings()
    facts: FactSettings = FactSettings()
    final: FinalSettings = FinalSettings()
    hybrid: HybridSettings = HybridSettings()
    weights: WeightSettings = WeightSettings()
    buffer: BufferSettings = BufferSettings()
    honesty: HonestySettings = HonestySettings()
    admission: AdmissionSettings = AdmissionSettings()
    mix: MixSettings = MixSettings()
    advantage: AdvantageSettings = AdvantageSettings()
    update: UpdateSettings = UpdateSettings(widths=(288, 352, 416, 480, 576))
    watchdog: WatchdogSettings = WatchdogSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    def __post_init__(self):
        for name in ('steps', 'groups', 'checkpoint_steps'):
            if getattr(self, name) < (0 if name == 'steps' else 1):
                raise ValueError(f'{name} must be positive, got {getattr(self, name)}')
        for name in ('learning_rate', 'decay_steps', 'refills'):
            if getattr(self, name) < 0:
                raise ValueError(f'{name} must not be negative, got {getattr(self, name)}')
        context = self.decode.context_tokens
        if self.update.widths[-1] < context:
            raise ValueError(
                f'update.widths must reach decode.context_tokens ({context}), '
                f'got {self.update.widths}'
            )
        if self.facts.turns < self.rollout.max_turns:
            raise ValueError(
                f'facts.turns must be at least rollout.max_turns ({self.rollout.max_turns}), '
                f'got {self.facts.turns}'
            )
        self._check_sampling()
        most = max(cached_rows(share, self.rows) for share in self.mix.share.values)
        if most > self.buffer.capacity:
            raise ValueError(
                f'mix.share asks for up to {most} cached rows a step, buffer.capacity is '
                f'{self.buffer.capacity}; lower one or raise the other'
            )
        if self.advantage.stratified and self.admission.worst_tier > Tier.EXACT:
            raise ValueError(
                'advantage.stratified compares cached rows with exact ones: admission.worst_tier '
                f'must be {int(Tier.EXACT)} or less, got {int(self.admission.worst_tier)}'
            )
        if self.admission.failures_fraction and self.mix.mode == 'supervised':
            raise ValueError(
                'failures are kept for contrast and never imitated: with mix.mode supervised '
                f'admission.failures_fraction must be 0, got {self.admission.failures_fraction}'
            )
        if self.text not in ('lessons', 'general'):
            raise ValueError(f'text must be lessons or general, got {self.text!r}')
        if self.text_rows < 0:
            raise ValueError(f'text_rows must be 0 or more, got {self.text_rows}')
        shares = self.mesh.data * self.mesh.fsdp
        for name, rows in (
            ('decode.slots', self.decode.slots),
            ('update.micro_rows', self.update.micro_rows),
        ):
            if rows % shares:
                raise ValueError(
                    f'{name} must be a multiple of mesh.data * mesh.fsdp ({shares}), got {rows}'
                )

    def _check_sampling(self):
        """What RL samples from must be able to score every row of the update."""
        if not self.sampling.temperature:
            raise ValueError('sampling.temperature is 0: a group would be one episode, told often')
        plain = dataclasses.replace(self.sampling, temperature=1.0, min_tokens=0)
        filters = plain != SamplingSettings()
        loss = self.update.loss
        if self.rollout.temperatures and loss.sampler_truncation is None:
            raise ValueError(
                f'rollout.temperatures {self.rollout.temperatures} draw what the update must weigh '
                'for sampling.temperature: set update.loss.sampler_truncation, 2 for example'
            )
        others = (max(self.mix.share.values), loss.kl_weight, loss.language_weight)
        if filters and any(others):
            raise ValueError(
                'top_k, top_p and min_p give tokens of other policies probability 0; '
                f'mix.share, kl_weight and language_weight must be 0 with them, got {others}'
            )

    @property
    def samplings(self) -> tuple[SamplingSettings, ...]:
        """What the samples of a group draw by, in turn."""
        temperatures = self.rollout.temperatures or (self.sampling.temperature,)
        return tuple(dataclasses.replace(self.sampling, temperature=t) for t in temperatures)

    @property
    def rows(self) -> int:
        """Fresh episodes a step."""
        return self.groups * self.rollout.samples


SMALL = RunConfig(
    steps=24,
    # Few steps of RL have to suffice: each takes several steps of the optimizer, at a rate that
    # falls, and examples weigh as much as the policy's own attempts.
    optimizer='muon',
    learning_rate=6e-3,
    decay_steps=18,
    curriculum=CurriculumSettings(tasks=16, order='uniform'),
    supervised=SupervisedSettings(demonstrations=44, general=24, epochs=1, rows=8),
    weights=WeightSettings(
        micro=Schedule(start=0.3, end=0.1, steps=24, shape='linear'),
        macro=Schedule(start=0.5, end=0.2, steps=24, shape='linear'),
        final=Schedule(start=1.0),
    ),
    mix=MixSettings(share=Schedule(start=0.3, end=0.1, steps=40, shape='linear')),
    # Without the deviation: it would blow small differences between attempts that all succeeded, or
    # all failed, up to the size of the difference between success and failure.
    advantage=AdvantageSettings(std=False, turn_baseline='place'),
    update=UpdateSettings(
        widths=(320, 448, 576), minibatches=4, loss=LossSettings(kl_weight=0.005)
    ),
    evaluation=EvaluationSettings(unseen=16, seen=2),
)

SMOLLM2_BFCL = dataclasses.replace(
    SMALL,
    run_dir=pathlib.Path('runs/smollm2-bfcl'),
    model='smollm2',
    chat_template='base',
    steps=2,
    groups=2,
    lora=LoraSettings(rank=16),
    optimizer='adamw',
    learning_rate=5e-5,
    decay_steps=0,
    checkpoint_steps=1,
    curriculum=CurriculumSettings(suites=('bfcl',), levels=(1,), tasks=24, order='uniform'),
    bfcl=BfclSettings(distractor_tools=2),
    supervised=SupervisedSettings(
        demonstrations=24, epochs=4, rows=4, optimizer='adamw', learning_rate=1e-3
    ),
    collection=CollectionSettings(samples=0),
    decode=DecodeSettings(
        slots=4, context_tokens=1536, turn_tokens=96, episode_tokens=400,
        widths=(64, 256, 512, 1024, 1536),
    ),
    rollout=RolloutSettings(samples=4, max_turns=16),
    buffer=BufferSettings(minimum=4),
    update=UpdateSettings(
        micro_rows=1,
        widths=(512, 768, 1024, 1536),
        loss=LossSettings(kl_weight=0.02, supervised_weight=0.2),
    ),
    evaluation=EvaluationSettings(unseen=4, seen=2),
    tool_cache=ToolCacheSettings(mode='replay', tiers=TierSettings()),
)  # fmt: skip

PRESETS = {'small': SMALL, 'smollm2-bfcl': SMOLLM2_BFCL}
