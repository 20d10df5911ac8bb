"""Laws of what is learned beside demonstrations: thoughts of a file, conversations of files."""

import dataclasses
import functools
import json
import pathlib

import pytest

from cacherl_jax.chat.parse import HERMES
from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE, demonstrations
from cacherl_jax.compose.command import read_config, saved_config
from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.run.results import plain
from cacherl_jax.supervised.dataset import episode_arrays
from cacherl_jax.supervised.formats import openai_lines
from cacherl_jax.supervised.lessons import imported_arrays, with_thinking
from cacherl_jax.supervised.rules import rule_teacher
from cacherl_jax.supervised.thinking import spoken, think_episode
from cacherl_jax.supervised.update import SupervisedSettings
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import live_sessions


@functools.cache
def chat() -> Chat:
    tokenizer = load_tokenizer(BASE)
    return Chat(tokenizer=tokenizer, end_ids=(tokenizer.convert_tokens_to_ids('<|im_end|>'),))


@functools.cache
def episodes():
    tasks = [suite.task('train', level, 3) for suite in SUITES for level in (1, 3)]
    return demonstrations(tasks, live_sessions())


def thoughtful():
    return [think_episode(episode, rule_teacher) for episode in episodes()]


def file_of(folder, found) -> str:
    path = folder / 'spoken.jsonl'
    path.write_text(openai_lines([spoken(episode) for episode in found]))
    return str(path)


def longest_first():
    """The demonstrations with their lengths in tokens."""
    lengths = [len(episode_arrays(chat(), episode)['tokens']) for episode in episodes()]
    return sorted(zip(lengths, episodes(), strict=True), key=lambda pair: -pair[0])


def imported(folder, found, context_tokens, **settings):
    """Arrays of the file that the episodes make, and what was told."""
    told = []
    files = (pathlib.Path(file_of(folder, found)),)
    arrays = imported_arrays(
        chat(), SupervisedSettings(files=files, **settings), context_tokens, HERMES, told.append
    )
    return arrays, told


def test_without_thinking_demonstrations_are_as_they_were_played():
    assert with_thinking(episodes(), 'none') == list(episodes())


def test_silent_demonstrations_hold_calls_and_answers_alone():
    silent = with_thinking(episodes(), 'silent')
    assert any(turn.calls and turn.content for one in episodes() for turn in one.turns)
    for one, other in zip(episodes(), silent, strict=True):
        assert [turn.calls for turn in one.turns] == [turn.calls for turn in other.turns]
        assert one.answer == other.answer and other.turns[-1].content
        assert not any(turn.content or turn.thinking for turn in other.turns if turn.calls)
        read = chat().tokenizer.decode(episode_arrays(chat(), other)['tokens'])
        notes = [turn.content for turn in one.turns if turn.calls and turn.content]
        assert not any(note in read for note in notes)


def test_thoughts_of_a_file_are_those_that_were_written_into_it(tmp_path):
    """Whatever the order, and whatever else stands in the file."""
    file = file_of(tmp_path, thoughtful()[::-1])
    assert with_thinking(episodes(), file) == with_thinking(episodes(), 'rules') == thoughtful()
    assert with_thinking(episodes()[2:4], file) == thoughtful()[2:4]


@pytest.mark.parametrize(
    ('written', 'why'),
    [
        (lambda: thoughtful()[1:], '1 of 6 demonstrations are not among its 5 conv'),
        (lambda: list(episodes()), 'has a turn without a thought'),
    ],
)
def test_a_file_that_lacks_thoughts_is_refused(written, why, tmp_path):
    with pytest.raises(ValueError, match=f'spoken.jsonl: .*{why}'):
        with_thinking(episodes(), file_of(tmp_path, written()))


def test_a_file_is_learned_as_the_episodes_it_was_written_from(tmp_path):
    arrays, told = imported(tmp_path, thoughtful(), 4096)
    for row, episode in zip(arrays, thoughtful(), strict=True):
        for name, expected in episode_arrays(chat(), episode).items():
            assert row[name].tolist() == expected.tolist()
    assert len(told) == 1 and told[0].endswith('6 conversations, none longer than the context')


def test_what_is_longer_than_the_context_is_left_out_and_counted(tmp_path):
    (longest, _), (second, _), *_ = longest_first()
    arrays, told = imported(tmp_path, episodes(), second)
    assert len(arrays) == 5 and max(len(row['tokens']) for row in arrays) == second
    assert '5 conversations kept, 1 left out' in told[0] and f'{longest} tokens' in told[0]


def test_a_file_of_which_nothing_fits_is_refused(tmp_path):
    length, correction = longest_first()[0]
    with pytest.raises(ValueError, match=f'fits: context_tokens is {length - 1}, the .* {length}'):
        imported(tmp_path, [correction], length - 1)


def test_malformed_records_are_skipped_where_that_is_asked_for_and_counted(tmp_path):
    file = tmp_path / 'spoken.jsonl'
    file.write_text('{"messages": []}\n' + pathlib.Path(file_of(tmp_path, episodes())).read_text())
    told = []
    skipping = SupervisedSettings(files=(file,), malformed='skip')
    assert len(imported_arrays(chat(), skipping, 4096, HERMES, told.append)) == 6
    assert told[0].endswith('1 malformed records skipped')
    with pytest.raises(ValueError, match='line 1'):
        imported_arrays(chat(), dataclasses.replace(skipping, malformed='raise'), 4096, HERMES)


@pytest.mark.parametrize(
    ('settings', 'why'),
    [
        ({'thinking': 'rule'}, "must be one of .*'silent', 'rules'.* or a file .* got 'rule'"),
        ({'demonstrations': 0}, 'demonstrations must be at least 1, got 0'),
        ({'general': -1}, 'general must be at least 0, got -1'),
        ({'format': 'alpaca'}, "format must be one of .* got 'alpaca'"),
        ({'malformed': 'keep'}, "malformed must be one of .* got 'keep'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        SupervisedSettings(**settings)


def test_all_of_it_is_set_by_name_and_read_back_from_a_run(tmp_path):
    named = '--supervised.thinking a.jsonl --supervised.files b.jsonl c.json --supervised.pack '
    named += '--supervised.demonstrations 0 --supervised.rejection.samples 4'
    config = read_config('', named.split())
    found = config.supervised
    assert found.files == (pathlib.Path('b.jsonl'), pathlib.Path('c.json')) and found.pack
    assert found.thinking == 'a.jsonl' and found.rejection.samples == 4
    (tmp_path / 'config.json').write_text(json.dumps(plain(config)))
    assert saved_config(tmp_path) == config


def test_min_tokens_goes_with_every_row_and_other_filters_do_not():
    config = read_config('', ['--sampling.min-tokens', '8'])
    assert config.sampling.min_tokens == 8 and config.mix.share.start > 0
    with pytest.raises(ValueError, match='top_k, top_p and min_p give tokens of other policies'):
        dataclasses.replace(config, sampling=SamplingSettings(top_k=8))


def test_temperatures_by_sample_need_weights_between_sampler_and_trainer():
    ladder = ['--rollout.temperatures', '0.7', '1.3', '--update.loss.sampler-truncation', '2']
    config = read_config('', ladder)
    with pytest.raises(ValueError, match='set update.loss.sampler_truncation'):
        dataclasses.replace(config, update=UpdateSettings(widths=config.update.widths))
    assert [each.temperature for each in config.samplings] == [0.7, 1.3]
    assert config.sampling.temperature == 1.0  # what is trained
