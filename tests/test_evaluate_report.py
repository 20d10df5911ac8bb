"""The report: all of a run on one page, whatever the policy wrote, and nothing fetched."""

import dataclasses
import html.parser
import json
import math
import re

import numpy as np
import pytest
from evaluate_episodes import PRICE, TRAINS, answer, call, episode, result, task, turn
from page_browser import CHROMIUM, drawn

from cacherl_jax.evaluate.record import episode_record, row_tokens
from cacherl_jax.evaluate.report import ReportSettings, render_report, run_record
from cacherl_jax.rewards.hybrid import WeightSettings
from cacherl_jax.rollout_cache.mix import MixSettings
from cacherl_jax.run.files import make_lines
from cacherl_jax.run.metrics import make_metrics
from cacherl_jax.run.results import write_result
from cacherl_jax.schedule import Schedule

HOSTILE = (
    '</script><img src=x onerror="document.title=1">&amp;<!--\u2028{{x}} <!-- insert run --> \ud800'
)
TERMS = ('final', 'macro', 'micro', 'penalty')
NUMBERS = {'success': 0.5, 'success_seen': None, 'turns': 3.0, 'calls': 2.0}
MIX = {'exact': 0.25, 'fuzzy': 0.0, 'best_effort': 0.0, 'miss': 0.75}
RL = {'steps': 7, 'episodes': 112, 'live_tool_calls': 30, 'tier_mix': MIX}


def hostile_run(folder, hostile=HOSTILE):
    metrics = make_metrics(folder)
    for step in range(7):
        numbers = {hostile: step, 'kl': float('nan'), 'tool_cache/exact_fraction': 1.0}
        numbers |= {f'still/{hostile}': 0, f'rollout_cache/refused/{hostile}': step**2}
        numbers |= {f'rollout_cache/quarantined/{hostile}': step, 'rewards/solved': step / 7}
        metrics.write(step, numbers | {f'rewards/weighted_{name}': step - 3 for name in TERMS})
    metrics.close()
    says = turn((call(hostile, hostile), result(hostile)), says=hostile, thinking=hostile)
    append = make_lines(folder / 'episodes.jsonl')
    for number, last in enumerate((hostile, 'At 15:40.', 'At noon.')):
        played = episode(says, answer(last), of=task(f'{hostile}{number}', suite=hostile))
        append(episode_record(played, step=number, stage='final', terms={hostile: [1, 2]}))
    suites = {hostile: {'final': NUMBERS}}
    config = {hostile: hostile, 'weights': {'final': hostile}, 'mix': hostile}
    path = folder / 'result.json'
    write_result(path, suites=suites, rl=RL, seconds=1.5, seed=3, config=config)
    return render_report(folder)


class Elements(html.parser.HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def test_what_the_policy_wrote_adds_no_element(tmp_path):
    empty, full = Elements(render_report(tmp_path)), Elements(hostile_run(tmp_path / 'run'))
    assert full.tags == empty.tags


def test_the_page_fetches_nothing(tmp_path):
    page = hostile_run(tmp_path)
    addresses = [a.get('src') or a.get('href') for _, a in Elements(page).tags]
    assert all(address[:1] == '#' or address == 'data:,' for address in addresses if address)
    assert "default-src 'none'" in page and not re.search(r'@import|url\(|fetch\(', page)


def test_the_page_carries_what_the_run_wrote(tmp_path):
    page = hostile_run(tmp_path)
    data = json.loads(re.search(r'id="run">(.*?)</script>', page, re.S)[1])
    assert [e['success'] for e in data['episodes']] == [False, True, False]
    assert data['episodes'][0]['turns'][0]['calls'][0]['name'] == HOSTILE
    assert data['series'][HOSTILE] == [[step, step] for step in range(7)]
    assert data['result']['config'][HOSTILE] == HOSTILE and data['schedules'] == {}
    assert data['refused']['names'] == [HOSTILE] and data['refused']['totals'] == [36]
    assert data['unchanged'] == {'kl': None, f'still/{HOSTILE}': 0}
    assert [shares for _, shares in data['tiers']['rows']] == [[0, 1, 0, 0, 0]] * 7


KEYS = """<script>
for (const key of 'jjk') document.dispatchEvent(new KeyboardEvent('keydown', {key}));
at('outcome').value = 'failed';
at('outcome').dispatchEvent(new Event('change'));
</script></body>"""


# After each key: is one compared, and how many turns stand in each of the two places?
PINNING = """<script>
const seen = [];
for (const key of ['c', 'j', 'j', 'k', 'Escape', 'c', 'c']) {
  document.dispatchEvent(new KeyboardEvent('keydown', {key}));
  const turns = ['pinned', 'episode'].map((id) => at(id).querySelectorAll('.turn').length);
  seen.push([pinned, current, !at('pinned').hidden, ...turns].join());
}
document.title = seen.join(' ');
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason='no chromium on this machine')
def test_a_browser_draws_the_page_without_complaint(tmp_path):
    # Half a surrogate pair is no text that --dump-dom could print.
    page = hostile_run(tmp_path / 'run', HOSTILE[:-1]).replace('</body>', KEYS)
    dom, said = drawn(page, tmp_path)
    tags = Elements(dom).tags
    assert 'CONSOLE' not in said and '<title>run – run report</title>' in dom
    assert not [tag for tag, _ in tags if tag == 'img']
    assert len([a for tag, a in tags if 'data-place' in a]) == 2  # the failed ones
    chosen = [a['data-place'] for _, a in tags if a.get('aria-current') == 'true']
    assert chosen == ['0']  # j, j, k came to the solved one, which the filter took away
    assert '2 of 3 episodes' in dom and '&lt;img src=x' in dom
    assert 'unchanged: kl not finite' in dom and 'NaN' not in dom


@pytest.mark.skipif(CHROMIUM is None, reason='no chromium on this machine')
def test_the_pinned_episode_stays_beside_those_opened_after_it(tmp_path):
    page = hostile_run(tmp_path / 'run', HOSTILE[:-1]).replace('</body>', PINNING)
    dom, said = drawn(page, tmp_path)
    together = ['0,0,true,2,0', '0,1,true,2,2', '0,2,true,2,2', '0,1,true,2,2']
    apart, again = ',1,false,0,2', '1,1,true,2,0'
    assert f'<title>{" ".join([*together, apart, again, apart])}</title>' in dom
    assert 'CONSOLE' not in said


@pytest.mark.skipif(CHROMIUM is None, reason='no chromium on this machine')
@pytest.mark.parametrize('steps', [0, 1])
def test_a_run_that_just_began_is_drawn_without_complaint(tmp_path, steps):
    lines = [{'step': step, 'rollout_cache/refused/tier': 3, **paid(1.0)} for step in range(steps)]
    write_metrics(tmp_path, lines)
    dom, said = drawn(render_report(tmp_path), tmp_path)
    assert 'CONSOLE' not in said and 'NaN' not in dom and 'run report</title>' in dom
    assert ('quiet">There is no metrics.jsonl with a reward' in dom) == (steps == 0)


def write_metrics(folder, lines):
    (folder / 'metrics.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))


def paid(value):
    return {f'rewards/weighted_{name}': value for name in TERMS}


PLANS = {
    'weights': WeightSettings(
        micro=Schedule(start=0.7, end=0.1, steps=7, shape='cosine'),
        macro=Schedule(start=0.5, points=((3, 0.1), (16, 0.3)), shape='piecewise'),
        final=Schedule(start=0.25),
    ),
    'mix': MixSettings(share=Schedule(start=0.3, end=0.1, steps=16, shape='linear')),
}


@pytest.mark.parametrize('file', ['config.json', 'result.json'])
@pytest.mark.parametrize('most', [3, 500])
def test_the_planned_values_are_those_of_the_schedule(tmp_path, file, most):
    config = {area: dataclasses.asdict(settings) for area, settings in PLANS.items()}
    write_metrics(tmp_path, [{'step': step} | paid(1.0) for step in (0, 1, 3, 7, 16, 20)])
    whole = config if file == 'config.json' else {'config': config}
    (tmp_path / file).write_text(json.dumps(whole))
    record = run_record(tmp_path, ReportSettings(most_points=most))
    steps = [step for step, _ in record['reward']['rows']]
    assert len(steps) == min(most, 6) and len(record['schedules']) == 4
    for name, points in record['schedules'].items():
        area, field = name.split('/')
        schedule = getattr(PLANS[area], field)
        assert points == [[step, schedule.at(step)] for step in steps]


@pytest.mark.parametrize('told', [None, {}, {'weights': None}, {'weights': {'final': {'end': 3}}}])
def test_settings_without_schedules_leave_the_reward(tmp_path, told):
    if told is not None:
        (tmp_path / 'config.json').write_text(json.dumps(told))
    write_metrics(tmp_path, [{'step': 0} | paid(1.0), {'step': 1} | paid(2.0)])
    record = run_record(tmp_path, ReportSettings())
    assert record['schedules'] == {}
    assert record['reward']['rows'] == [[0, [1.0] * 4], [1, [2.0] * 4]]
    assert render_report(tmp_path).endswith('</html>\n')


def test_terms_of_the_reward_are_drawn_once_and_a_lost_one_leaves_a_gap(tmp_path):
    lost = {'rewards/weighted_micro': None}
    lines = [{'step': 0, 'rewards/solved': 0.5, 'kl': 1} | paid(0.5), {'step': 1} | paid(1) | lost]
    write_metrics(tmp_path, lines)
    record = run_record(tmp_path, ReportSettings())
    assert record['reward']['names'] == list(TERMS) and list(record['series']) == ['kl']
    assert record['reward']['rows'] == [[0, [0.5] * 4], [1, None]]
    assert record['reward']['lines'] == {'solved': [[0, 0.5]]}


@pytest.mark.parametrize('most', [1, 500])
def test_what_never_changed_is_listed_and_not_drawn(tmp_path, most):
    lines = [{'step': step, 'one': 1, 'two': step % 2, 'lost': None} for step in range(7)]
    lines[3] |= {'once': 2, 'tool_cache/exact_fraction': 1}
    write_metrics(tmp_path, lines)
    record = run_record(tmp_path, ReportSettings(most_points=most))
    assert record['unchanged'] == {'one': 1, 'lost': None}
    assert list(record['series']) == ['once', 'two'] and len(record['tiers']['rows']) == 1


def test_a_measure_under_two_names_is_drawn_once_and_told_by_both(tmp_path):
    lines = [{'step': s, 'rewards/answer': s, 'rewards/final': s, 'loss/kl': s, 'policy/kl': 2 * s}
             for s in range(5)]  # fmt: skip
    lines[3] |= {'loss/kl': math.nan, 'policy/kl': math.nan}
    write_metrics(tmp_path, lines)
    found = run_record(tmp_path, ReportSettings())
    assert found['twins'] == {'rewards/answer': ['rewards/final']}
    assert set(found['series']) == {'rewards/answer', 'loss/kl', 'policy/kl'}


def test_what_is_the_same_but_once_is_drawn_twice(tmp_path):
    write_metrics(tmp_path, [{'step': s, 'a/x': s, 'a/y': s % 4} for s in range(5)])
    found = run_record(tmp_path, ReportSettings())
    assert not found['twins'] and set(found['series']) == {'a/x', 'a/y'}


def test_refusals_of_each_step_add_up_to_the_count(tmp_path):
    refused = 'rollout_cache/refused/'
    lines = [
        {'step': 0, f'{refused}tier': 3},
        {'step': 1, f'{refused}tier': 3, f'{refused}duplicate': 7},
        {'step': 2, f'{refused}tier': 5, f'{refused}duplicate': 16},
    ]
    write_metrics(tmp_path, lines)
    found = run_record(tmp_path, ReportSettings())['refused']
    assert found['names'] == ['tier', 'duplicate'] and found['totals'] == [5, 16]
    assert found['rows'] == [[0, [3, 0]], [1, [0, 7]], [2, [2, 9]]]


def test_five_hundred_episodes_stay_under_ten_megabytes(tmp_path):
    append = make_lines(tmp_path / 'episodes.jsonl')
    asked = turn((call(), result('leaves 15:40 ' * 25)), says='When does it leave? ' * 6)
    turns = [dataclasses.replace(asked, start=80 * n, stop=80 * n + 40) for n in range(6)]
    tokens = row_tokens(np.arange(480), np.ones(480, bool), np.arange(480) / 7, str)
    for step in range(500):
        append(episode_record(episode(*turns), step=step, stage='train', tokens=tokens))
    page = render_report(tmp_path, ReportSettings(most_episodes=500))
    assert 1_000_000 < len(page.encode()) < 10_000_000


def test_an_empty_folder_has_a_page_too(tmp_path):
    record = run_record(tmp_path, ReportSettings())
    assert (record['series'], record['result'], record['episodes']) == ({}, None, [])
    assert render_report(tmp_path).endswith('</html>\n')


def test_a_line_still_being_written_is_left_out(tmp_path):
    (tmp_path / 'metrics.jsonl').write_text('{"step": 0, "kl": 0.5}\n{"step": 1, "k')
    assert run_record(tmp_path, ReportSettings())['series'] == {'kl': [[0, 0.5]]}


@pytest.mark.parametrize('most', [1, 3, 7, 16])
def test_long_curves_keep_their_mean(tmp_path, most):
    lines = [json.dumps({'step': step, 'kl': step**2}) + '\n' for step in range(12)]
    (tmp_path / 'metrics.jsonl').write_text(''.join(lines))
    points = run_record(tmp_path, ReportSettings(most_points=most))['series']['kl']
    assert len(points) <= most and points[-1][0] == 11
    if most == 3:
        assert np.mean([value for _, value in points]) == pytest.approx(np.mean(np.arange(12) ** 2))


def test_tiers_are_shares_of_a_step(tmp_path):
    shares = {'tool_cache/exact_fraction': 0.75, 'tool_cache/miss_fraction': 0.25}
    counted = {'tool_cache/tier_exact': 0.5, 'tool_cache/tier_miss': 0.5}
    lines = [{'step': 0} | shares | counted, {'step': 1, 'kl': 2}, {'step': 2} | counted]
    (tmp_path / 'metrics.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    record = run_record(tmp_path, ReportSettings())
    assert record['tiers']['names'] == ['live', 'exact', 'fuzzy', 'best_effort', 'miss']
    rows = [[0, [0, 0.75, 0, 0, 0.25]], [2, [0, 0.5, 0, 0, 0.5]]]
    assert record['tiers']['rows'] == rows and list(record['series']) == ['kl']


def test_each_token_is_shown_in_one_turn():
    played = episode(
        turn((call(), result()), start=3, stop=7), turn(says='At 15:40.', start=9, stop=16)
    )
    tokens = row_tokens(np.arange(16), np.arange(16) > 2, np.arange(16.0) / 3, str)
    turns = episode_record(played, step=0, stage='train', tokens=tokens)['turns']
    assert [len(turn['tokens']) for turn in turns] == [7, 9]
    assert sum((turn['tokens'] for turn in turns), []) == [list(token) for token in tokens]
    assert tokens[2] == ('2', 'forced', 0.6667) and tokens[3][1] == 'sampled'


def test_the_newest_episodes_stay_and_tokens_give_way(tmp_path):
    append = make_lines(tmp_path / 'episodes.jsonl')
    tokens = row_tokens(np.arange(7), np.ones(7, bool), np.zeros(7), str)
    for step in range(3):
        append(episode_record(episode(TRAINS, PRICE), step=step, stage='train', tokens=tokens))
    record = run_record(tmp_path, ReportSettings(most_episodes=2, most_tokens=7))
    assert [e['step'] for e in record['episodes']] == [2, 1]
    assert ['tokens' in e['turns'][0] for e in record['episodes']] == [True, False]
    assert record['episodes_left_out'] == 1
