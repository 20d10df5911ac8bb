"""The benchmarks as commands, tiny: what they print and write, and what they refuse.

Most of the time goes into compiling; works of the same sizes share what is compiled.
"""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cacherl_jax.bench import limits, rollout
from cacherl_jax.bench.measured import Measured, show, write
from cacherl_jax.bench.peers import Outcome
from cacherl_jax.bench.play import WIDTH_TOKENS, check, decoder_of, make_player
from cacherl_jax.bench.rollout import GREEDY, growth
from cacherl_jax.bench.settings import BenchSettings
from cacherl_jax.bench.update import LOSS, OPTIMIZER, advantages, make_scorer, make_step
from cacherl_jax.bench.workloads import (
    MODELS,
    RolloutWork,
    parameters,
    rollout_work,
    update_work,
)
from cacherl_jax.mesh import MeshSettings, make_mesh
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.timing import Span, Timing
from experiments import (
    bench_decode,
    bench_devices,
    bench_gpu,
    bench_memory,
    bench_rollout,
    bench_update,
)

FIELDS = {'workload', 'model', 'ours_tokens_per_second', 'peers', 'roofline_share'}
FIELDS |= {'compile_seconds'}
TINY = dataclasses.replace(MODELS['tiny'], layers=1)


@pytest.fixture(autouse=True, scope='module')
def quickly_made_programs():
    """One layer, and nothing optimized: how fast a program is, is of no matter here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, 'tiny', TINY)
        jax.config.update('jax_disable_most_optimizations', True)
        yield
        jax.config.update('jax_disable_most_optimizations', False)


@pytest.fixture(autouse=True)
def rough_limits(monkeypatch):
    """What the machine can do is measured in a moment; test_bench_workloads.py looks at that."""
    monkeypatch.setattr(limits, 'LEAST_SECONDS', 5e-3)
    monkeypatch.setattr(rollout, 'read_rate', lambda: limits.read_rate(2**20))


def command(monkeypatch, capsys, module, *words):
    """What the command prints when given these words."""
    monkeypatch.setattr(sys, 'argv', [module.__name__, *words])
    module.main()
    return capsys.readouterr().out


def written(path):
    found = json.loads(path.read_text())
    assert found.keys() == FIELDS and found['peers'] == {}
    assert found['ours_tokens_per_second'] > 0 and 0 < found['roofline_share'] < 10
    return found


def test_an_update_is_measured_and_written(monkeypatch, capsys, tmp_path):
    file = tmp_path / 'w1.json'
    words = ('--model', 'tiny', '--repetitions', '1', '--groups', '1', '2', '--json', str(file))
    printed = command(monkeypatch, capsys, bench_update, *words)
    assert 'W1 on model tiny' in printed and '1 calls' in printed and 'more tokens' in printed
    assert written(file)['workload'] == 'W1'


def test_a_rollout_is_measured_for_more_and_more_turns(monkeypatch, capsys, tmp_path):
    file = tmp_path / 'w2.json'
    words = ('--model', 'tiny', '--repetitions', '1', '--turns', '1', '2', '--json', str(file))
    printed = command(monkeypatch, capsys, bench_rollout, *words)
    assert 'W2 on model tiny' in printed and 'more turns' in printed
    assert written(file)['workload'] == 'W2'


def test_decoding_is_measured_for_each_number_of_rows(monkeypatch, capsys, tmp_path):
    file = tmp_path / 'w3.json'
    words = ('--model', 'tiny', '--rows', '1', '3', '--prompt-tokens', '7', '--new-tokens', '5')
    words += ('--repetitions', '1', '--json', str(file))
    printed = command(monkeypatch, capsys, bench_decode, *words)
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
    words = ('--model', 'tiny', '--vocab', '4099', '--rows', '13', '--row-tokens', '119')
    printed = command(monkeypatch, capsys, bench_memory, *words, '--json', str(file))
    told = json.loads(file.read_text())
    assert 'computed again' in printed and told['logits_bytes'] == 4 * 13 * 119 * 4099
    for layers in told['layers'].values():
        assert 0 < layers['largest_bytes'] < told['logits_bytes'] / 2


@pytest.mark.parametrize(
    ('settings', 'wrong', 'said'),
    [
        (BenchSettings, {'model': 'XL'}, 'model must be one of'),
        (BenchSettings, {'dtype': 'int8'}, 'dtype must be one of'),
        (BenchSettings, {'repetitions': 0}, 'repetitions must be 1'),
        (bench_update.UpdateBench, {'groups': (1, 0)}, 'groups must be 1'),
        (bench_devices.DevicesBench, {'layouts': ((8, 1, 2),)}, 'layouts must be of 8 devices'),
        (bench_devices.DevicesBench, {'processes': 1}, 'processes must be 0'),
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


def test_the_update_that_is_measured_learns_while_its_reference_stays():
    work = update_work('tiny')
    larger = optax.chain(OPTIMIZER, optax.scale(1e4))  # a step of 1e-6 is lost in the rounding
    step = make_step(TINY, work, parameters(TINY), make_scorer(TINY, jnp.float32), larger)
    first, second = (fetch(step()) for _ in range(2))
    assert first['update/tokens'] == work.sampled_tokens == second['update/tokens']
    # Before its first step the policy is the reference, and the one that sampled.
    assert abs(first['policy/kl']) < 1e-6 < 1e-5 < second['policy/kl']
    assert first['policy/ratio_deviation'] < 1e-5 < 1e-3 < second['policy/ratio_deviation']
    assert second['loss/policy'] < first['loss/policy'] - 1e-3
    paid = second['loss/total'] - second['loss/policy']
    np.testing.assert_allclose(paid, LOSS.kl_weight * second['loss/kl'], rtol=1e-2)


def test_an_advantage_compares_within_its_group():
    found = np.asarray(advantages(np.array([1.0, 3.0, 10.0, 30.0], np.float32), 2))
    np.testing.assert_allclose(found, [-0.7071, 0.7071, -0.7071, 0.7071], atol=1e-3)


def test_a_played_row_is_its_prompt_its_turns_and_the_answers_given():
    work, sampling = rollout_work('tiny'), SamplingSettings()
    prompts, tools = work.inputs(TINY.vocab)
    params = parameters(TINY)
    play = make_player(
        decoder_of(TINY, work, sampling, make_mesh(MeshSettings())), params, work, prompts, tools
    )
    rows = fetch(play(0))
    check(rows, work)
    np.testing.assert_array_equal(rows.tokens[:, :16], np.repeat(prompts, work.group, axis=0))
    after = work.turn_starts[1]
    np.testing.assert_array_equal(rows.tokens[:, after - work.tool_tokens : after], tools[0])
    assert not np.array_equal(rows.tokens, fetch(play(1)).tokens)
    with pytest.raises(AssertionError, match='sampled ones'):
        check(rows, RolloutWork())


def test_no_number_of_turns_makes_a_program_once_all_widths_are_met():
    work, turns = rollout_work('tiny'), (2, 3, 7, 6)
    tokens = [dataclasses.replace(work, turns=count).row_tokens for count in turns]
    assert [-(-count // WIDTH_TOKENS) for count in tokens] == [2, 3, 5, 5]  # widths
    made = [row[-1] for row in growth(BenchSettings(model='tiny', repetitions=1), turns)]
    assert made == [0, 0, 0, 0]


def test_greedy_rows_with_one_prompt_are_equal():
    work = RolloutWork(prompts=1, group=3, prompt_tokens=7, turns=1, turn_tokens=5)
    params = parameters(TINY)
    inputs = work.inputs(TINY.vocab)
    decoder = decoder_of(TINY, work, GREEDY, make_mesh(MeshSettings()))
    rows = fetch(make_player(decoder, params, work, *inputs)(0))
    assert (rows.tokens == rows.tokens[0]).all() and jax.tree.leaves(rows)
