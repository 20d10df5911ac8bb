"""Outcomes of runs with known numbers, and run folders that hold them, for tests of tables."""

import json

from experiments.ablations.measures import Outcome, Point


def outcome_of(*success, points=((0, 0, 0.0), (100, 400, 0.9)), seen=0.5):
    """A run with a success for each task, half of it as its score."""
    by_task = {f'trip/test/1/{task:05d}': value for task, value in enumerate(success)}
    shares = {'exact share': 0.5, 'fuzzy share': 0.17, 'best_effort share': 0.33}
    return Outcome(
        by_task={'success': by_task, 'score': {task: x / 2 for task, x in by_task.items()}},
        numbers={'success on seen': seen, **shares, 'miss share': 0.0},
        points=tuple(Point(*point) for point in points),
    )


def finished_run(folder, success, between=()):
    """The files of a finished run, which solved these (task, attempt) pairs.

    `between` are evaluations during RL: (step, episodes, live calls, success).
    """
    folder.mkdir(parents=True)
    stage = {'success': 0.25, 'success_seen': 0.5, 'turns': 2.0, 'calls': 1.0}
    final = stage | {'success': sum(success.values()) / len(success)}
    mix = {'exact': 0.5, 'fuzzy': 0.25, 'best_effort': 0.25, 'miss': 0.0}
    spent = {'steps': 4, 'episodes': 64, 'live_tool_calls': 0, 'collection_calls': 30}
    result = {'suites': {'trip': {'supervised': stage, 'final': final}}}
    result |= {'rl': spent | {'tier_mix': mix}, 'seconds': 3.0}
    (folder / 'result.json').write_text(json.dumps(result))
    records = [
        {
            'stage': 'final', 'split': 'test', 'task': task, 'suite': 'trip', 'sample': sample,
            'step': 4, 'termination': 'answered', 'success': bool(right), 'score': float(right),
        }
        for (task, sample), right in success.items()
    ]  # fmt: skip
    others = [
        records[0] | {'split': 'train', 'task': 'seen', 'success': True},
        records[0] | {'task': 'spoiled', 'termination': 'tool_infrastructure'},
        records[0] | {'stage': 'supervised', 'step': -1},
    ]
    lines = [json.dumps(record) + '\n' for record in [others[2], *records, *others[:2]]]
    (folder / 'episodes.jsonl').write_text(''.join(lines))
    numbers = []
    for step, episodes, calls, reached in between:
        told = {'episodes/played': episodes, 'tool_cache/live_calls': calls}
        numbers += [{'step': step, **told}, {'step': step, 'evaluate/success': reached}]
    numbers.append({'step': 3, 'perf/step_seconds': 2.0})
    (folder / 'metrics.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in numbers))
    return folder
