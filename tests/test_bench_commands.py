"""The benchmarks as commands, tiny: what they print and write, and what they refuse."""

import json
import sys

import jax
import numpy as np
import pytest

from cacherl_jax.bench.measured import Measured, show, write
from cacherl_jax.bench.peers import Outcome
from cacherl_jax.bench.play import check, decoder_of, make_player
from cacherl_jax.bench.rollout import GREEDY, growth, parameters
from cacherl_jax.bench.settings import BenchSettings
from cacherl_jax.bench.update import LOSS, advantages, make_scorer, make_step
from cacherl_jax.bench.workloads import MODELS, RolloutWork, rollout_work, update_work
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.timing import Span, Timing
from experiments import bench_decode, bench_gpu, bench_memory, bench_rollout, bench_update

FIELDS = {'workload', 'model', 'ours_tokens_per_second', 'peers', 'roofline_share'}
FIELDS |= {'compile_seconds'}
TINY = MODELS['tiny']


def command(monkeypatch, capsys, module, *words):
    """What the command prints when given these words."""
    monkeypatch.setattr(sys, 'argv', [module.__name__, *words])
    module.main()
    return capsys.readouterr().out


def written(path):
    found = json.loads(path.read_text())
    assert found.keys() == FIELDS and found['peers'] == {}
    assert found['ours_tokens_per_second'] > 0 and 0 < found['roofline_share'] < 2
    return found


def test_an_update_is_measured_and_written(monkeypatch, capsys, tmp_path):
    file = tmp_path / 'w1.json'
    words = ('--model', 'tiny', '--repetitions', '1', '--json', str(file))
    printed = command(monkeypatch, capsys, bench_update, *words)
    assert 'W1 on model tiny' in printed and '1 calls' in printed
    assert written(file)['workload'] == 'W1'


def test_a_rollout_is_measured_for_more_and_more_turns(monkeypatch, capsys, tmp_path):
    file = tmp_path / 'w2.json'
    words = ('--model', 'tiny', '--repetitions', '1', '--turns', '1', '3', '--json', str(file))
    printed = command(monkeypatch, capsys, bench_rollout, *words)
    assert 'W2 on model tiny' in printed and 'more turns' in printed
    assert written(file)['workload'] == 'W2'


def test_decoding_is_measured_for_each_number_of_rows(monkeypatch, capsys, tmp_path):
    file = tmp_path / 'w3.json'
    words = ('--model', 'tiny', '--rows', '1', '3', '--new-tokens', '7', '--repetitions', '1')
    printed = command(monkeypatch, capsys, bench_decode, *words, '--json', str(file))
    assert 'rows 1,' in printed and 'rows 3,' in printed
    assert [each['workload'] for each in json.loads(file.read_text())] == ['W3', 'W3']


def test_a_device_is_measured_until_the_time_is_up(monkeypatch, capsys, tmp_path):
    file = tmp_path / 'gpu.json'
    words = ('--model', 'tiny', '--rows', '3', '--repetitions', '1', '--minutes', '1e-9')
    printed = command(monkeypatch, capsys, bench_gpu, *words, '--json', str(file))
    assert printed.count('left out') == 3 and json.loads(file.read_text()) == []
    settings = bench_gpu.DeviceBench(model='tiny', rows=3, repetitions=1)
    assert [measure().workload for measure in bench_gpu.workloads(settings).values()] == [
        'W2',
        'W1',
        'W3',
    ]


def test_no_array_of_an_update_is_as_large_as_its_logits(monkeypatch, capsys, tmp_path):
    file = tmp_path / 'memory.json'
    words = ('--model', 'tiny', '--vocab', '4099', '--rows', '3', '--row-tokens', '512')
    printed = command(monkeypatch, capsys, bench_memory, *words, '--json', str(file))
    told = json.loads(file.read_text())
    assert 'computed again' in printed and told['logits_bytes'] == 4 * 3 * 512 * 4099
    for layers in told['layers'].values():
        assert 0 < layers['largest_bytes'] < told['logits_bytes'] / 2


@pytest.mark.parametrize(
    ('settings', 'wrong', 'said'),
    [
        (BenchSettings, {'model': 'XL'}, 'model must be one of'),
        (BenchSettings, {'dtype': 'int8'}, 'dtype must be one of'),
        (BenchSettings, {'repetitions': 0}, 'repetitions must be 1'),
        (bench_rollout.RolloutBench, {'turns': (1, 0)}, 'turns must be 1'),
        (bench_decode.DecodeBench, {'rows': ()}, 'rows, prompt_tokens and new_tokens'),
        (bench_memory.MemoryBench, {'vocab': 0}, 'vocab, rows and row_tokens'),
        (bench_gpu.DeviceBench, {'minutes': 0}, 'minutes must be above 0'),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, wrong, said):
    with pytest.raises(ValueError, match=said):
        settings(**wrong)


def test_the_table_and_the_file_say_the_same(tmp_path, capsys):
    later = tuple(Span(seconds, 0.25) for seconds in (2.0, 1.0, 4.0))
    found = Measured(
        workload='W1',
        model='S',
        variant='v',
        tokens=100,
        timing=Timing(first=Span(5.0, 0.0), later=later),
        matmul_seconds=0.5,
        floor_seconds=1.0,
        peak_bytes=None,
        peers=(Outcome('fast', 200.0), Outcome('lame', None, failure='it fell')),
    )
    show([found])
    printed = capsys.readouterr().out
    assert all(word in printed for word in ('25%', '50%', '0.25', 'lame failed: it fell'))
    write([found], tmp_path / 'one.json')
    told = json.loads((tmp_path / 'one.json').read_text())
    assert told['peers'] == {'fast': 200.0} and told['ours_tokens_per_second'] == 50.0
    assert (told['roofline_share'], told['compile_seconds']) == (0.5, 3.0)


@pytest.mark.xfail(reason='open: at its first step the divergence of the measured update is 0')
def test_the_update_that_is_measured_learns():
    work = update_work('tiny')
    params = parameters(TINY, np.float32)
    step = make_step(TINY, work, params, make_scorer(TINY))
    first, second = (fetch(step()) for _ in range(2))
    assert first['update/tokens'] == work.sampled_tokens == second['update/tokens']
    assert first['policy/ratio_deviation'] < 1e-5 < 10 * second['policy/ratio_deviation']
    assert LOSS.kl_weight > 0 and second['policy/kl'] > 0


def test_an_advantage_compares_within_its_group():
    found = np.asarray(advantages(np.array([1.0, 3.0, 10.0, 30.0], np.float32), 2))
    np.testing.assert_allclose(found, [-0.7071, 0.7071, -0.7071, 0.7071], atol=1e-3)


def test_a_played_row_is_its_prompt_its_turns_and_the_answers_given():
    work, sampling = rollout_work('tiny'), SamplingSettings()
    prompts, tools = work.inputs(TINY.vocab)
    params = parameters(TINY, np.float32)
    play = make_player(decoder_of(TINY, work, sampling), params, work, prompts, tools)
    rows = fetch(play(0))
    check(rows, work)
    np.testing.assert_array_equal(rows.tokens[:, :16], np.repeat(prompts, work.group, axis=0))
    after = work.turn_starts[1]
    np.testing.assert_array_equal(rows.tokens[:, after - work.tool_tokens : after], tools[0])
    assert not np.array_equal(rows.tokens, fetch(play(1)).tokens)
    with pytest.raises(AssertionError, match='sampled ones'):
        check(rows, RolloutWork())


@pytest.mark.xfail(reason='open: one program more is compiled for the last number of turns')
def test_programs_do_not_multiply_with_turns():
    settings = BenchSettings(model='tiny', repetitions=1)
    made = [row[-1] for row in growth(settings, (4, 2, 3))]
    assert made[0] >= made[1] == made[2] == 0


def test_greedy_rows_with_one_prompt_are_equal():
    work = RolloutWork(prompts=1, group=3, prompt_tokens=7, turns=1, turn_tokens=5)
    params = parameters(TINY, np.float32)
    inputs = work.inputs(TINY.vocab)
    rows = fetch(make_player(decoder_of(TINY, work, GREEDY), params, work, *inputs)(0))
    assert (rows.tokens == rows.tokens[0]).all() and jax.tree.leaves(rows)
