"""The result of a run, what is refused, how a run is stopped and what is seen meanwhile."""

import dataclasses
import enum
import io
import json
import os
import pathlib
import signal

import numpy as np
import pytest
from rich.console import Console

from cacherl_jax.run.refusal import EXIT_CODE, Refusal, refusing
from cacherl_jax.run.results import plain, settings_hash, versions, write_result
from cacherl_jax.run.stop import STOP_SIGNALS, listen_for_stop
from cacherl_jax.run.terminal import print_table, progress

NUMBERS = {'success': 0.5, 'success_seen': None, 'turns': 3.0, 'calls': 2.0}
MIX = {'exact': 0.25, 'fuzzy': 0.0, 'best_effort': 0.0, 'miss': 0.75}
RL = {'steps': 7, 'episodes': 112, 'live_tool_calls': 30, 'tier_mix': MIX}


class Colour(enum.Enum):
    RED = 'red'


@dataclasses.dataclass(frozen=True)
class Settings:
    rate: float = 1e-3
    folder: pathlib.Path = pathlib.Path('runs')
    colours: tuple = (Colour.RED,)


def write(path, suites=None, rl=RL):
    suites = {'trip': {'final': NUMBERS}} if suites is None else suites
    return write_result(path, suites=suites, rl=rl, seconds=1.5, seed=3, config=Settings())


def test_a_result_says_what_was_run(tmp_path):
    result = write(tmp_path / 'result.json')
    assert json.loads((tmp_path / 'result.json').read_text()) == result
    assert result['config'] == {'rate': 1e-3, 'folder': 'runs', 'colours': ['red']}
    assert result['versions']['jax'] == versions()['jax']


def test_a_result_without_a_number_is_refused(tmp_path):
    with pytest.raises(ValueError, match="missing .'calls', 'success_seen', 'turns'."):
        write(tmp_path / 'result.json', {'trip': {'final': {'success': 1.0}}})
    with pytest.raises(ValueError, match="unknown .'middle'."):
        write(tmp_path / 'result.json', {'trip': {'middle': NUMBERS}})
    assert not (tmp_path / 'result.json').exists()


def test_the_hash_does_not_know_the_order_of_settings():
    assert settings_hash({'a': 1, 'b': (2, 3)}) == settings_hash({'b': [2, 3], 'a': 1})
    assert settings_hash({'a': 1}) != settings_hash({'a': 2})


def test_numbers_of_any_kind_become_json():
    found = plain({'x': np.float32(0.5), 'n': np.int64(3), 'inf': float('inf'), 'on': True})
    assert found == {'x': 0.5, 'n': 3, 'inf': None, 'on': True}


def test_what_json_cannot_hold_is_an_error():
    with pytest.raises(TypeError, match='object has no form in JSON'):
        plain({'x': object()})


def test_a_refusal_ends_a_script_with_one_message(capsys):
    @refusing()
    def script():
        raise Refusal('got --rows 7', allowed='multiples of 3', remedy='try --rows 6')

    with pytest.raises(SystemExit) as ended:
        script()
    assert ended.value.code == EXIT_CODE
    told = capsys.readouterr().err
    assert told == 'refused: got --rows 7\nAllowed: multiples of 3\nWhat to do: try --rows 6\n'


def test_our_own_mistakes_keep_their_traceback():
    with pytest.raises(ValueError), refusing():
        raise ValueError('ours')
    with pytest.raises(SystemExit), refusing(ValueError):
        raise ValueError('a setting')


@pytest.mark.parametrize('number', STOP_SIGNALS)
def test_a_signal_asks_and_a_second_one_ends(number):
    former = {each: signal.getsignal(each) for each in STOP_SIGNALS}
    stop_requested = listen_for_stop()
    before = stop_requested()
    os.kill(os.getpid(), number)
    assert (before, stop_requested()) == (False, True)
    assert {each: signal.getsignal(each) for each in STOP_SIGNALS} == former


def test_a_log_file_gets_the_last_line_of_a_progress_bar():
    log = Console(file=io.StringIO(), width=80)
    with progress('training', total=3, console=log) as advance:
        for reward in (0.0, 0.25, 1 / 3):
            advance(reward=reward)
    assert log.file.getvalue().splitlines()[-1] == 'training 3/3  reward 0.3333'


def test_a_terminal_gets_a_bar():
    screen = Console(file=io.StringIO(), width=80, force_terminal=True)
    with progress('training', total=3, done=2, console=screen) as advance:
        advance(reward=0.5)
    assert '3/3' in screen.file.getvalue() and 'reward 0.5' in screen.file.getvalue()


def test_a_table_shows_what_it_is_given_as_text():
    page = Console(file=io.StringIO(), width=80)
    print_table('Success', ('suite', 'rate'), [('[bold]trip', 2 / 3), ('other', None)], page)
    shown = page.file.getvalue()
    assert '[bold]trip' in shown and '0.6667' in shown and '–' in shown
