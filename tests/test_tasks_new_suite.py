"""A new suite is one small record: what is asked, its truth, its expert, its checks."""

import dataclasses
import re

from cacherl_jax.tasks.suite import (
    Question,
    Suite,
    ask,
    called,
    demonstrate,
    draw,
    goal,
    read,
    spaced,
)
from cacherl_jax.tasks.task import AssistantTurn, Episode, Termination, Turn
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import Call, tool


def add(left: int, right: int) -> dict:
    """Add two numbers."""
    return {'sum': left + right}


@dataclasses.dataclass(frozen=True)
class Addition(Question):
    """As many numbers as the level has calls, plus one."""

    numbers: tuple[int, ...]

    @property
    def entity(self):
        return f'{len(self.numbers)} numbers from {self.numbers[0]}'

    def requests(self, unseen):
        return ['What is {}?'.format(' + '.join(map(str, self.numbers)))]

    def expert(self):
        total, *others = self.numbers
        for number in others:
            (told,) = yield ask(Call('add', {'left': total, 'right': number}))
            total = read(told)['sum']
        yield AssistantTurn(content=f'It is {total}.')

    def subgoals(self):
        first, second, *_ = self.numbers
        return [goal('begun', lambda turns: called(turns, 'add', left=first, right=second), 'add')]

    def score(self, answer):
        return float(re.findall(r'\d+', answer) == [str(sum(self.numbers))])

    def solved(self, answer):
        return spaced(answer) == f' it is {sum(self.numbers)} '

    def wrong_answers(self):
        return [f'It is {sum(self.numbers) + 1}.']


def addition(split, level, draws):
    least = {'train': 10, 'validation': 40, 'test': 70}[split]
    return Addition(tuple(draws.randrange(least, least + 30) for _ in range(level + 1)))


ADDITION = Suite(name='addition', tools=((tool(add),),) * 3, question=addition)


def test_a_small_suite_has_all_that_a_task_needs():
    sessions = live_sessions()
    for task in draw(ADDITION, 'train', 3, 7):
        session = sessions.open_session(task.id, task.tools, task.start)
        episode = demonstrate(task, session.answer)
        assert len(episode.turns) == 4 and task.score(episode) == 1.0 and task.solved(episode)
        assert task.subgoals[0].reached(episode.turns[:1])
        for wrong in task.wrong_answers:
            turns = (Turn(text=wrong, content=wrong),)
            said = dataclasses.replace(episode, turns=turns)
            assert task.score(said) == 0.0 and not task.solved(said)


def test_an_episode_without_an_answer_earns_nothing():
    task = ADDITION.task('test', 1, 3)
    numbers = re.findall('[0-9]+', task.messages[0]['content'])
    right = f'It is {sum(map(int, numbers))}.'
    cut = Episode(
        task=task,
        sample=0,
        step=-1,
        turns=(Turn(text=right, content=right),),
        termination=Termination.MAX_TOKENS,
    )
    assert task.score(cut) == 0.0 and not task.solved(cut)
