"""Train a tool-calling agent: supervised start, RL from the tool cache, evaluation on new entities.

    ./launch.sh train --run-dir runs/mine --seed 1
    ./launch.sh train --preset smollm2-bfcl --steps 2

A run that was stopped or killed goes on when the same command is given again.
"""

import time

from cacherl_jax.compose.agent import load_agent
from cacherl_jax.compose.command import read_config
from cacherl_jax.compose.joining import joined
from cacherl_jax.compose.run import Run
from cacherl_jax.compose.step import batch_of, with_text
from cacherl_jax.grpo.update import raise_if_refused
from cacherl_jax.rewards.facts import gather_facts
from cacherl_jax.rewards.hybrid import hybrid_reward, weights_at
from cacherl_jax.rollout_cache.curriculum import draw_tasks
from cacherl_jax.rollout_cache.mix import mix
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.stop import listen_for_stop
from cacherl_jax.run.terminal import progress


def train(config, run, advance):
    """The training loop: data goes from top to bottom, state from one step to the next."""
    learner, store, standing = run.learner, run.store, run.standing
    for step in range(run.first_step, config.steps):
        started = time.time()
        groups = draw_tasks(
            standing, config.seed, step, config.groups, config.curriculum, run.source
        )
        groups, fresh, episodes = run.rollout(learner.params, groups, step, standing)
        weights = weights_at(step, config.weights)
        facts = gather_facts(episodes, config.facts, run.scorer.judge(episodes, fresh))
        rewards = hybrid_reward(facts, weights, config.hybrid)
        store, draw = run.draw_cached(store, groups, weights, step)
        mixed = mix(fresh, run.tasks_of(episodes), rewards.total, rewards.counted, draw, config.mix)
        reference, own = run.reference(fresh), run.own(learner.params, mixed)
        running = run.running(standing, episodes, draw)
        batch = batch_of(
            mixed, draw, rewards, facts.played, facts.answer_turn, reference, weights, running,
            config.advantage, own,
        )  # fmt: skip
        text, lengths = run.text(step)
        batch, lengths = with_text(batch, text), run.lengths(mixed) + lengths
        learner, learned = run.update(learner, batch, lengths)
        store = run.admit(store, fresh, episodes, rewards, step)
        standing = run.observe(standing, episodes, rewards)
        numbers = run.write(
            step, fresh, episodes, facts, rewards, batch, learned, store, draw, started
        )
        raise_if_refused(numbers)
        advance(reward=numbers['rewards/total'], success=numbers['rewards/solved'])
        run.keep(step, learner, store, standing)
    return learner


@refusing()
def main():
    """Everything around the loop."""
    config = read_config(__doc__)
    with joined(), refusing():
        run = Run(config, load_agent(config), listen_for_stop())
        with progress('RL', config.steps, done=run.first_step) as advance:
            learner = train(config, run, advance)
        run.finish(learner)


if __name__ == '__main__':
    main()
