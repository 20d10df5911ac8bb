"""What runs forgot: perplexity on text held out from all of them, before and after their RL.

    ./launch.sh sweep --vary update.loss.language-weight 0 0.1 --out runs/forgetting
    ./launch.sh forgetting runs/forgetting/*/
    ./launch.sh forgetting runs/small --text notes.txt --json forgetting.json

`model` is the model as it came, `start` after the supervised stage, `end` after RL.  Without --text
the text is invented conversations that nobody learns from.
"""

import dataclasses
import json
import math
import pathlib
from typing import Any

import tyro

from cacherl_jax.compose.agent import load_agent, make_score, refused
from cacherl_jax.compose.command import saved_config
from cacherl_jax.compose.perplexity import held_out_conversations, perplexity, pieces_of_text
from cacherl_jax.config import RunConfig
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.run.checkpoint import restore_part
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table, progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForgettingSettings:
    """Which runs, and what they are asked to read."""

    runs: tyro.conf.Positional[tuple[pathlib.Path, ...]]  # folders of finished runs
    text: pathlib.Path | None = None  # a file of plain text in place of invented conversations
    conversations: int = 128  # invented ones that are read
    json: pathlib.Path | None = None  # where the numbers go, with the settings they belong to

    def __post_init__(self):
        if not self.runs:
            raise ValueError('name the folder of a run, or several')
        if self.conversations < 1:
            raise ValueError(f'conversations must be at least 1, got {self.conversations}')


def measure(folder: pathlib.Path, settings: ForgettingSettings) -> dict[str, Any]:
    """Perplexity of a run's three stages; all by the settings that the run itself has."""
    if not (folder / 'policy').is_dir():
        raise Refusal(f'{folder} is not a finished run: it has no policy')
    config = saved_config(folder)
    agent = load_agent(config)
    score, context = make_score(agent, SamplingSettings()), config.decode.context_tokens
    arrays = held_out_conversations(agent.chat, settings.conversations, context)
    if settings.text:
        with refused():
            arrays = pieces_of_text(agent.chat, settings.text.read_text('utf-8'), context)
    if not arrays:
        raise Refusal(f'{settings.text} holds less than two tokens')
    with refused():
        start = restore_part(folder / 'checkpoints', 'reference', agent.params)
    end = load_agent(dataclasses.replace(config, model=str(folder / 'policy'), chat_template=''))
    stages = {'model': agent.params, 'start': start, 'end': end.params}
    found = {name: perplexity(score, x, arrays, config.update) for name, x in stages.items()}
    return {'run': str(folder), 'language_weight': language_weight(config)} | found


def language_weight(config: RunConfig) -> float:
    """What the language-model term weighs in the run's loss; without rows it is none."""
    return config.update.loss.language_weight if config.text_rows else 0.0


def with_rise(measured: dict[str, Any]) -> dict[str, Any]:
    """And by how many nats a token RL made the text less expected."""
    return measured | {'rise_nats': math.log(measured['end'] / measured['start'])}


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(ForgettingSettings, description=__doc__)
    rows = []
    with progress('perplexity', len(settings.runs)) as advance:
        for folder in settings.runs:
            rows.append(with_rise(measure(folder, settings)))
            advance(end=rows[-1]['end'])
    columns = ('run', 'language_weight', 'model', 'start', 'end', 'rise_nats')
    print_table('perplexity on held-out text', columns, [[row[c] for c in columns] for row in rows])
    if settings.json:
        told = {'settings': plain(settings), 'runs': rows, 'versions': versions()}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')


if __name__ == '__main__':
    main()
