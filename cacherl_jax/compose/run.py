"""Open a run: do what comes before RL or take up a checkpoint; bind the functions of the loop."""

import dataclasses
import functools
import json
import shutil
import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from cacherl_jax import keys
from cacherl_jax.compose.agent import (
    Agent,
    lasting,
    make_score,
    refused,
    rl_optimizer,
    rollout_of,
    save_learned,
    training_source,
)
from cacherl_jax.compose.contents import contents
from cacherl_jax.compose.judging import final_scorer
from cacherl_jax.compose.keeping import Clock, RolloutCache, Totals, shown_episodes
from cacherl_jax.compose.refill import outcomes, refilled, undecided_share
from cacherl_jax.compose.scoring import own_of, prompts_in, reference_of
from cacherl_jax.compose.shown import print_results
from cacherl_jax.compose.stages import (
    demonstrated_lessons,
    evaluate,
    mean_success,
    text_rows,
    worst_tier_counts,
)
from cacherl_jax.compose.start import start_of
from cacherl_jax.compose.step import compared_within, row_lengths, running_of
from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.compose.watching import HISTORY_STEPS, Watchdog
from cacherl_jax.config import RunConfig
from cacherl_jax.evaluate.metrics import flat_metrics
from cacherl_jax.evaluate.record import episode_record, spoken
from cacherl_jax.evaluate.report import render_report
from cacherl_jax.grpo.update import make_update
from cacherl_jax.mesh import row_placement, row_shares
from cacherl_jax.processes import any_says, is_first, told
from cacherl_jax.rewards.metrics import reward_metrics, spreads
from cacherl_jax.rollout_cache.curriculum import Standing, observe
from cacherl_jax.run.checkpoint import make_checkpoints
from cacherl_jax.run.files import make_lines, write_atomically
from cacherl_jax.run.metrics import make_metrics, written_numbers
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.run.results import plain, write_result
from cacherl_jax.run.stop import leave_if
from cacherl_jax.tool_cache.together import open_tool_cache

SHOWN_STEPS = 5  # every so many steps the first group's episodes are kept for the report


class Run:
    """The functions and the starting state of one training loop."""

    def __init__(self, config: RunConfig, agent: Agent, stop: Callable[[], bool]):
        self.config, self.agent, self.stop = config, agent, lambda: any_says(stop())
        self.folder = config.run_dir
        self.root = keys.root(config.seed)
        self.source = training_source(config)
        self.checkpoints = make_checkpoints(
            self.folder / 'checkpoints', lasting(config), contents=contents(config)
        )
        new = self.checkpoints.latest() is None
        self.watchdog = Watchdog(config.watchdog, self.folder, new)
        self.settings = self.watchdog.tempered(config.update)
        self.lessons, self.scorer = demonstrated_lessons(agent, config), final_scorer(agent, config)
        self.totals, self.clock = Totals(), Clock()
        self.calls_before = 0  # live calls in RL before this process took up the run
        self._start() if new else self._go_on()

    def _bind(self, params):
        """Functions that train what begins from `params`, which stay as the reference."""
        self.reference_params = params
        critic = self.agent.shape if self.config.advantage.estimator == 'gae' else None
        self.tuning = Tuning(settings=self.config.lora, params=params, critic=critic)
        score = make_score(self.agent, self.config.sampling, self.config.numerics)
        layout = row_placement(self.agent.mesh), row_shares(self.agent.mesh)
        optimizer, scored = rl_optimizer(self.config), self.tuning.score(score)
        self._update = make_update(scored, optimizer, self.settings, *layout)
        self.reference = reference_of(score, params, self.settings, *layout)
        self.own = own_of(scored, self.settings, self.config.advantage, *layout)

    # ---- before the loop

    def _go_on(self):
        """Take up the newest checkpoint."""
        self._bind(self.agent.params)
        learner = self._update.init(self.tuning.init(self.root))
        self.cache = self._rollout_cache('')
        template = {
            'learner': learner,
            'reference': self.agent.params,
            'store': self.cache.empty_store(),
        }
        step, tree, records = self.checkpoints.restore(template)
        self._open_tool_cache()
        frozen = self.config.tool_cache.mode == 'replay'
        if frozen and records['tool_cache_hash'] != self.tool_cache.content_hash:
            raise Refusal(
                f'{self.folder}/tool_cache.sqlite is not the cache that this run began with',
                remedy='put that file back, or give another run folder',
            )
        self.cache = self._rollout_cache(self.tool_cache.content_hash)
        self.cache.restore(records['rollout_cache'])
        self._bind(tree['reference'])
        self.learner, self.store = tree['learner'], tree['store']
        self.first_step = step
        self.standing = Standing.restore(records['standing'])
        self.supervised = records['supervised']
        if self.config.steps < step:
            raise Refusal(
                f'{self.folder} has done {step} steps already, steps is {self.config.steps}',
                remedy='give at least as many steps, or another run folder',
            )
        self.totals = Totals(**records['totals'])
        self.calls_before = self.totals.live_tool_calls
        self.clock = Clock(self.totals.seconds)
        self._open_lines(step)
        past = told(lambda: written_numbers(self.folder, 'rewards/judged', HISTORY_STEPS))
        self.watchdog.restore(records['watch'], past)
        if not step:
            self.metrics.write(0, flat_metrics(self.supervised, 'supervised'))

    def _start(self):
        """All that comes before RL; ends with the first checkpoint."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(
            self.folder / 'config.json', json.dumps(plain(self.config), indent=2) + '\n'
        )
        for kept in ('rollout_cache', 'quarantine') if is_first() else ():
            shutil.rmtree(self.folder / kept, ignore_errors=True)
        start = start_of(self.agent, self.lessons, self.config, self.stop)
        self.totals.collection_calls = start.learning_calls + start.filling_calls
        self._open_tool_cache()
        self.cache = self._rollout_cache(self.tool_cache.content_hash)
        self._bind(start.params)
        self.learner = self._update.init(self.tuning.init(self.root))
        store = self.cache.add_demonstrations(self.cache.empty_store(), self.lessons)
        self.store = self.cache.add_samples(store, start.samples)
        self.first_step, self.standing = 0, Standing()
        self._open_lines(0)
        self.supervised = start.suites
        self.metrics.write(0, flat_metrics(start.suites, 'supervised'))
        for record in start.episodes:
            self.show(record)
        self._save(0, self.learner, self.store, self.standing)

    def _rollout_cache(self, tool_cache_hash):
        folder = self.folder / 'rollout_cache'
        return RolloutCache(self.config, self.agent.chat, folder, tool_cache_hash)

    def _open_tool_cache(self):
        path = self.folder / 'tool_cache.sqlite'
        with refused():
            self.tool_cache = open_tool_cache(path, self.config.tool_cache, self.config.execute)
        self._rollout = rollout_of(
            self.agent, self.config, self.tool_cache.open_session, rows=self.config.rows
        )

    def _open_lines(self, step):
        self.metrics = make_metrics(self.folder, step - 1)
        self.metrics.say(step, {'settings': json.dumps(plain(self.config), indent=2)})
        self.show = make_lines(self.folder / 'episodes.jsonl', step - 1)

    # ---- in the loop

    def rollout(self, learned, groups, step, standing):
        """Episodes of the step's tasks, answered from the tool cache; groups may be exchanged."""
        play = functools.partial(self._rollout, self.tuning.policy(learned), step=step)
        *played, self.aside = refilled(play, groups, step, standing, self.config, self.source)
        return played

    def update(self, learner, batch, lengths):
        prompts = prompts_in(batch, self.settings)
        return self._update.update(learner, batch, np.asarray(lengths), prompts)

    def tasks_of(self, episodes):
        """The group that each row is compared in."""
        return compared_within(episodes, self.config.advantage)

    def draw_cached(self, store, groups, weights, step):
        return self.cache.draw(store, groups, weights, self.root, step)

    def text(self, step):
        """Rows for the language-model term and their lengths; none where it weighs nothing."""
        if not self.config.text_rows or not self.config.update.loss.language_weight:
            return None, []
        return text_rows(self.agent, self.lessons, self.config, self.root, step)

    def running(self, standing, episodes, draw):
        """What fresh attempts at each row's task were paid before, where that is the baseline."""
        wanted = self.config.advantage.baseline == 'running'
        return running_of(standing, episodes, draw) if wanted else None

    lengths = staticmethod(row_lengths)

    def admit(self, store, fresh, episodes, rewards, step):
        solved = [episode.task.solved(episode) for episode in episodes]
        return self.cache.admit(store, fresh, episodes, rewards, solved, step)

    def observe(self, standing, episodes, rewards):
        return observe(standing, outcomes(episodes, rewards, self.aside), self.config.curriculum)

    def write(self, step, fresh, episodes, facts, rewards, batch, learned, store, draw, started):
        """All numbers of the step to disk; returns them as floats."""
        played = [*episodes, *(episode for episode, _ in self.aside)]
        self.totals.episodes += len(played)
        self.totals.add_tiers(worst_tier_counts(played))
        answered = self.tool_cache.commit() | self.scorer.metrics()
        answered['tool_cache/live_calls'] += self.calls_before
        self.totals.live_tool_calls = int(answered['tool_cache/live_calls'])
        numbers = (
            reward_metrics(rewards, facts)
            | learned
            | answered
            | self.cache.metrics(store, draw, step)
            | {
                'rewards/solved': np.mean([e.task.solved(e) for e in episodes]),
                'episodes/played': self.totals.episodes,
                'episodes/aside': len(self.aside),
                'rewards/undecided_groups': undecided_share(rewards, self.config.rollout.samples),
                'episodes/turns': np.mean([len(e.turns) for e in episodes]),
                'episodes/tokens': jnp.mean(fresh.length),
                'perf/step_seconds': time.time() - started,
            }
        )
        if not self.settings.loss.kl_weight:  # without a reference there is no divergence
            numbers = {name: x for name, x in numbers.items() if not name.endswith('/kl')}
        numbers = self.metrics.write(step, numbers)
        self.metrics.spread(step, spreads(rewards, facts) | {'episodes/tokens': fresh.length})
        shown = list(shown_episodes(self.agent.chat, episodes, fresh, batch, rewards, step))
        self.watchdog.look(step, numbers, shown)
        for record in shown if step % SHOWN_STEPS == 0 else ():
            self.show(record)
        if step % SHOWN_STEPS == 0 and shown:
            self.metrics.say(step, {'episode': spoken(shown[0])})
        self.watchdog.act()  # before anyone raises over a broken step, and before it is kept
        return numbers

    def keep(self, step, learner, store, standing):
        """Evaluate when due; save when due, and when asked to stop; then end."""
        every = self.config.evaluation.every
        if every and (step + 1) % every == 0 and step + 1 < self.config.steps:
            found = evaluate(self.agent, self.tuning.policy(learner.params), self.config)
            numbers = flat_metrics(found.suites) | {'evaluate/success': mean_success(found.suites)}
            self.metrics.write(step, numbers)
        due = (step + 1) % self.config.checkpoint_steps == 0 or step + 1 == self.config.steps
        if (stopping := self.stop()) or due:
            self._save(step + 1, learner, store, standing)
        leave_if(stopping, f'after step {step + 1}; the same command goes on')

    def _save(self, step, learner, store, standing):
        self.totals.seconds = self.clock.seconds()
        records = {
            'rollout_cache': self.cache.save(),
            'tool_cache_hash': self.tool_cache.content_hash,
            'standing': standing.state(),
            'supervised': self.supervised,
            'totals': dataclasses.asdict(self.totals),
            'watch': self.watchdog.watch.state(),
        }
        tree = {'learner': learner, 'reference': self.reference_params, 'store': store}
        self.checkpoints.save(step, tree, records)

    # ---- after the loop

    def _evaluate(self, params) -> dict[str, Any]:
        found, step = evaluate(self.agent, params, self.config), self.config.steps
        self.metrics.write(step, flat_metrics(found.suites, 'final'))
        for episode in found.episodes:
            self.show(episode_record(episode, step=step, stage='final'))
        return plain(found.suites)

    def finish(self, learner) -> None:
        """Evaluate; write result.json, the model as a Hugging Face folder and the report."""
        config = self.config
        params = self.tuning.merged(learner.params)
        final = self._evaluate(params)
        suites = {n: {'supervised': self.supervised[n], 'final': final[n]} for n in final}
        rl = self.totals.told(config.steps)
        save_learned(self.agent, config.lora, params, self.folder)
        write_result(
            self.folder / 'result.json', suites=suites, rl=rl,
            seconds=self.clock.seconds(), seed=config.seed, config=config,
        )  # fmt: skip
        if is_first():
            write_atomically(self.folder / 'report.html', render_report(self.folder))
            print_results(suites, rl, self.clock.seconds(), self.folder)
        self.metrics.close()
        self.tool_cache.close()
