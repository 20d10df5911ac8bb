"""What a run keeps: what enters its rollout cache and leaves it, episodes to look at, counts.

The functions here stand between the training loop, which sees arrays, and the disk.
"""

import dataclasses
import hashlib
import json
import pathlib
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cacherl_jax import keys
from cacherl_jax.compose.samples import BEFORE_RL
from cacherl_jax.compose.step import TERMS, fresh_entries, term_weights
from cacherl_jax.config import RunConfig
from cacherl_jax.evaluate.record import episode_record, row_tokens
from cacherl_jax.processes import is_first, told
from cacherl_jax.rewards.facts import gather_facts
from cacherl_jax.rewards.honesty import DECISIVE, admission_judges, hacking_flags, near_miss
from cacherl_jax.rewards.hybrid import hybrid_reward, weights_at
from cacherl_jax.rollout_cache import record
from cacherl_jax.rollout_cache.admission import Door, Outcome
from cacherl_jax.rollout_cache.buffer import acquaint, make_buffer, rescore, task_weight
from cacherl_jax.rollout_cache.mix import cached_rows
from cacherl_jax.rollout_cache.record import Record, Source, as_entries, record_episode
from cacherl_jax.rollout_cache.review import DECISIONS, decisions
from cacherl_jax.run.fetch import fetch
from cacherl_jax.tasks.task import Episode
from cacherl_jax.tools.tool import specification


def digest(text: str) -> str:
    """Short, and equal for equal texts."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RolloutCache:
    """The device store's functions, the door before it, and the records on disk.

    The store itself is handed in and out: it belongs to the loop.
    """

    def __init__(self, config: RunConfig, chat, folder: pathlib.Path, tool_cache_hash: str):
        self.config, self.folder = config, folder
        self.most = max(cached_rows(s, config.rows) for s in config.mix.share.values)
        self.buffer = make_buffer(config.buffer, max(1, self.most))
        self.door = Door(
            config.admission,
            admission_judges(config.honesty, config.facts),
            hacking_flags(config.honesty, config.facts),
            instructive=near_miss(config.honesty, config.facts),
            decisive=DECISIVE,
        )
        self.known = {
            'template_hash': digest(chat.tokenizer.chat_template or ''),
            'tool_cache_hash': tool_cache_hash,
        }
        self.pending: list[Record] = []
        self.segments = 0
        self._rescore = jax.jit(rescore)
        self._acquaint = jax.jit(acquaint)

    def empty_store(self):
        """A store of the run's sizes with nothing in it."""
        return self.buffer.init(as_entries([], self.config.decode.context_tokens, TERMS))

    def _record(self, episode, arrays, rewards, row, version, source) -> Record:
        tools = json.dumps([specification(tool) for tool in episode.task.tools])
        return record_episode(
            episode,
            arrays,
            rewards={term: float(rewards.raw[term][row]) for term in TERMS},
            episode_return=float(rewards.total[row]),
            version=version,
            source=source,
            tools_hash=digest(tools),
            **self.known,
        )

    def add_demonstrations(self, store, lessons):
        """Experts' episodes enter through the same door, without log-probabilities."""
        rows = [row | {'logprob': None} for row in lessons.arrays[: len(lessons.episodes)]]
        return self._begin_with(store, lessons.episodes, rows, 0, Source.DEMONSTRATION)

    def add_samples(self, store, samples):
        """So does what the policy got right before RL, with those that its rollout gave."""
        rows = [{'logprob': None} | row for row in samples.arrays]
        return self._begin_with(store, samples.episodes, rows, BEFORE_RL, Source.REJECTION)

    def _begin_with(self, store, episodes, rows, version, source):
        """Pay episodes of before RL by the weights of its first step, and ask the door."""
        config = self.config
        if not episodes:
            return store
        facts = gather_facts(episodes, config.facts)
        rewards = fetch(hybrid_reward(facts, weights_at(0, config.weights), config.hybrid))
        records = []
        for row, (episode, arrays) in enumerate(zip(episodes, rows, strict=True)):
            made = self._record(episode, arrays, rewards, row, version, source)
            verdict = self.door.consider(made, episode)
            records += [verdict.record] if verdict.outcome is Outcome.ADMITTED else []
        if not records:
            return store
        self.pending += records
        entries = as_entries(records, config.decode.context_tokens, TERMS)
        return self.buffer.add(store, entries, jnp.ones(len(records), bool), 0)

    def draw(self, store, groups, weights, root, step):
        """Rows for this step by the share due, or None; returns are those of today's weights."""
        store = self._rescore(store, term_weights(weights))
        wanted = cached_rows(self.config.mix.share.at(step), self.config.rows)
        if not wanted or not fetch(self.buffer.can_sample(store, step)):
            return store, None
        tasks = jnp.asarray([keys.name_number(task.id) for task in groups], jnp.int32)
        # A row with a ratio is compared with its task's fresh rows; an example needs none.
        example = 0.0 if self.config.mix.mode == 'behaviour' else 1.0
        weight = jnp.where(store.entries.has_behaviour, task_weight(store, tasks), example)
        key = keys.stream(root, 'cached rows', step)
        return self.buffer.sample(store, key, weight, step, wanted)

    def admit(self, store, fresh, episodes, rewards, solved, step):
        """Ask the door about every fresh episode; those admitted go to the store and to disk."""
        store = self._approved(store, step)
        rows, paid = fetch((fresh, rewards))
        keep, source = np.zeros(len(episodes), bool), np.zeros(len(episodes), np.int32)
        for row, episode in enumerate(episodes):
            arrays = _row(rows, row, int(rows.length[row]))
            made = self._record(episode, arrays, paid, row, step, Source.SUCCESS)
            if not paid.counted[row]:
                continue
            verdict = self.door.consider(made, episode)
            if verdict.outcome is Outcome.ADMITTED:
                keep[row], source[row] = True, int(verdict.record.source)
                self.pending.append(verdict.record)
        entries = fresh_entries(fresh, episodes, rewards, step)
        entries = entries.replace(source=jnp.asarray(source))
        store = self.buffer.add(store, entries, jnp.asarray(keep), step)
        return self._acquaint(store, entries, jnp.asarray(solved))

    def _approved(self, store, step):
        """What a person let in since the last step: doubtful records, and corrected episodes."""
        run = self.folder.parent
        # A person may decide at any moment, so the first of several processes looks for all.
        decided = told(lambda: decisions(run) if (run / DECISIONS).exists() else {})
        settled = self.door.settle(decided)
        records = [verdict.record for verdict in settled if verdict.record]
        records += self._corrections(run / 'corrections')
        self.pending += records
        for one in records:
            entries = as_entries([one], self.config.decode.context_tokens, TERMS)
            store = self.buffer.add(store, entries, jnp.ones(1, bool), step)
        return store

    def _corrections(self, folder: pathlib.Path) -> list[Record]:
        """Those not seen before; one that is longer than the context is left out and counted."""
        known = record.read_together(folder)
        new = [one for one in known if one.identity not in self.door.seen]
        self.door.seen |= {one.identity for one in new}
        room = self.config.decode.context_tokens
        for one in new:
            if len(one.tokens) > room:
                self.door.counts['refused/too_long'] += 1
                print(
                    f'{folder}: the correction of {one.task} is left out: it has {len(one.tokens)} '
                    f'tokens, decode.context_tokens is {room}',
                    file=sys.stderr,
                )
        return [one for one in new if len(one.tokens) <= room]

    def save(self) -> dict[str, Any]:
        """Write what was admitted since the last checkpoint; returns what that must hold."""
        if self.pending:
            if is_first():
                record.append(self.folder, self.pending)
            self.segments += 1
            self.pending = []
        if is_first():
            self._write_quarantine()
        return {'segments': self.segments, 'door': self.door.state()}

    def _write_quarantine(self) -> None:
        waiting = self.folder.with_name('quarantine')
        shutil.rmtree(waiting, ignore_errors=True)
        if self.door.waiting:
            record.append(waiting, list(self.door.waiting.values()))

    def restore(self, state: dict[str, Any]) -> None:
        """Back to the checkpoint: segments written after it are dropped."""
        self.segments = state['segments']
        written = sorted(self.folder.glob('[0-9]*')) if is_first() else []
        for segment in written[self.segments :]:
            shutil.rmtree(segment)
        quarantine = self.folder.with_name('quarantine')
        waiting = record.read(quarantine) if quarantine.exists() else []
        self.door.restore(state['door'], {r.identity: r for r in waiting})

    def metrics(self, store, draw, step) -> dict[str, Any]:
        """Size, age and use of the store, what was drawn, and why episodes were refused."""
        filled, entries = store.filled, store.entries
        count = jnp.maximum(filled.sum(), 1)
        failed = filled & (entries.source == Source.FAILURE)
        drawn = 0 if draw is None else draw.drawn.sum()
        return self.door.metrics() | {
            'rollout_cache/size': filled.sum(),
            'rollout_cache/age': jnp.sum(step - entries.added, where=filled) / count,
            'rollout_cache/reuse': jnp.sum(entries.reuse, where=filled) / count,
            'rollout_cache/drawn': drawn,
            'rollout_cache/own_fraction': jnp.sum(filled & entries.has_behaviour) / count,
            'rollout_cache/failure_fraction': jnp.sum(failed) / count,
        }


def _row(rows, row: int, length: int) -> dict[str, np.ndarray]:
    """One trajectory's arrays, cut to its length."""
    names = ('tokens', 'sampled', 'logprob', 'turn')
    return {name: np.asarray(getattr(rows, name)[row, :length]) for name in names}


def shown_episodes(chat, episodes: Sequence[Episode], rows, batch, rewards, step: int):
    """The viewer's records of the first group: tokens, advantages, rewards by turn and term."""
    rows, advantage, paid = fetch((rows, batch.advantage, rewards))
    first = episodes[0].task.id
    for row, episode in enumerate(episodes):
        if episode.task.id != first:
            return
        length, turns = int(rows.length[row]), len(episode.turns)
        ids, sampled = rows.tokens[row, :length], rows.sampled[row, :length]
        tokens = row_tokens(ids, sampled, advantage[row, :length], lambda i: chat.decode([i]))
        yield episode_record(
            episode,
            step=step,
            stage='train',
            rewards=paid.turn[row, :turns].tolist(),
            terms={name: value[row, :turns].tolist() for name, value in paid.turn_terms.items()},
            advantages=[_mean(advantage[row, t.start : t.stop]) for t in episode.turns],
            tokens=tokens,
        )


def _mean(x) -> float:
    return float(x.mean()) if len(x) else 0.0


@dataclasses.dataclass
class Totals:
    """Counts over the whole run, carried through checkpoints."""

    episodes: int = 0
    live_tool_calls: int = 0  # in RL; replay never makes one
    collection_calls: int = 0  # live calls before RL: rejection sampling, filling the tool cache
    seconds: float = 0.0
    tiers: dict[str, int] = dataclasses.field(default_factory=dict)

    def add_tiers(self, counts: dict[str, int]) -> None:
        for name, count in counts.items():
            self.tiers[name] = self.tiers.get(name, 0) + count

    def told(self, steps: int) -> dict[str, Any]:
        """What result.json says of RL."""
        return {
            'steps': steps,
            'episodes': self.episodes,
            'live_tool_calls': self.live_tool_calls,
            'collection_calls': self.collection_calls,
            'tier_mix': self.tier_mix(),
        }

    def tier_mix(self) -> dict[str, float]:
        """Shares of RL's look-ups by tier; calls that were refused before any look-up are none."""
        tiers = ('exact', 'fuzzy', 'best_effort', 'miss')
        answers = max(1, sum(self.tiers.get(name, 0) for name in tiers))
        return {name: self.tiers.get(name, 0) / answers for name in tiers}


class Clock:
    """Seconds since the run, or the part of it before a restart, began."""

    def __init__(self, before: float = 0.0):
        self.before, self.begun = before, time.monotonic()

    def seconds(self) -> float:
        return self.before + time.monotonic() - self.begun
