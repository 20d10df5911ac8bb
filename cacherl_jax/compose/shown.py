"""What a person reads at the end of a run."""

import pathlib

from cacherl_jax.compose.stages import mean_success
from cacherl_jax.run.terminal import print_table


def print_results(suites, rl, seconds: float, folder: pathlib.Path) -> None:
    """Success before and after RL by suite, what RL took, and where it all lies."""
    columns = ['suite', 'start: unseen', 'seen', 'final: unseen', 'seen', 'turns', 'calls']
    extra = any('process_accuracy' in stages['final'] for stages in suites.values())
    rows = []
    for name, stages in suites.items():
        start, final = stages['supervised'], stages['final']
        row = [name, start['success'], start['success_seen'], final['success']]
        row += [final['success_seen'], final['turns'], final['calls']]
        if extra:
            row += [start.get('process_accuracy'), final.get('process_accuracy')]
        rows.append(row)
    if extra:
        columns += ['process: start', 'process: final']
    means = [
        mean_success({n: s[stage] for n, s in suites.items()}) for stage in ('supervised', 'final')
    ]
    rows.append(['mean', means[0], None, means[1]] + [None] * (len(columns) - 4))
    print_table('success, evaluated live', columns, rows)
    mix = '  '.join(f'{name} {share:.1%}' for name, share in rl['tier_mix'].items())
    done = (
        f'{rl["steps"]} steps, {rl["episodes"]} episodes, {rl["live_tool_calls"]} live tool calls'
    )
    print(f'RL: {done}; tier mix: {mix}')
    print(f'{seconds:.0f} seconds; {folder}/result.json, report.html, policy/')
