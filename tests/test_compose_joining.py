"""Whether a command is one of several processes is read from the environment, or refused."""

import pytest

from cacherl_jax.compose.joining import asked_for, joined
from cacherl_jax.processes import several
from cacherl_jax.run.refusal import Refusal

NAMES = ('JAX_COORDINATOR_ADDRESS', 'JAX_NUM_PROCESSES', 'JAX_PROCESS_ID')


def said(*words):
    return dict(zip(NAMES, words, strict=False))


def test_the_environment_names_the_process_or_leaves_it_to_be_found_out():
    assert asked_for({}) is None
    assert asked_for(said('', '2', '1')) is None
    assert asked_for(said('host:1234', '3', '2')) == ('host:1234', 3, 2)
    assert asked_for(said('auto')) == ()


@pytest.mark.parametrize('numbers', [(), ('2',), ('2', 'one'), ('2', '2'), ('-2', '0'), ('0', '0')])
def test_a_place_that_is_none_is_refused_with_both_numbers(numbers):
    with pytest.raises(Refusal, match='JAX_NUM_PROCESSES is .* and JAX_PROCESS_ID is'):
        asked_for(said('host:1234', *numbers))


def test_where_nothing_is_asked_a_command_runs_alone(monkeypatch, capsys):
    monkeypatch.delenv(NAMES[0], raising=False)
    with joined():
        print('heard')
        assert not several()
    assert capsys.readouterr().out == 'heard\n'
    with pytest.raises(KeyError), joined():
        raise KeyError
