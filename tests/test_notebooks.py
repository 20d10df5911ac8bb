"""What every notebook keeps to; that they run is for `-m slow`, which executes them."""

import ast
import json
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parents[1] / 'notebooks'
NOTEBOOKS = sorted(FOLDER.glob('*.ipynb'))


def cells(path):
    """(kind, source, outputs) of each cell."""
    found = json.loads(path.read_text(encoding='utf-8'))['cells']
    return [(c['cell_type'], ''.join(c['source']), c.get('outputs', [])) for c in found]


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_words_come_before_every_cell_and_cells_are_short(path):
    kinds = [kind for kind, _, _ in cells(path)]
    assert kinds == ['markdown', 'code'] * (len(kinds) // 2)
    sizes = [len(source.splitlines()) for kind, source, _ in cells(path) if kind == 'code']
    assert min(sizes) > 0 and max(sizes) <= 8


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_functions_have_at_most_five_lines(path):
    code = '\n'.join(source for kind, source, _ in cells(path) if kind == 'code')
    functions = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.FunctionDef)]
    assert all(n.end_lineno - n.lineno < 5 for n in functions)


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept_and_the_last_is_a_picture(path):
    outputs = [outputs for kind, _, outputs in cells(path) if kind == 'code']
    assert 'image/png' in outputs[-1][-1]['data'] and path.stat().st_size < 200_000
    said = [each for of_cell in outputs for each in of_cell]
    assert not [o for o in said if o['output_type'] == 'error' or o.get('name') == 'stderr']


def test_there_are_notebooks():
    assert {
        'loading_a_model',
        'one_training_step',
        'reading_a_run',
        'reviewing_a_cache',
        'tool_cache_and_audit',
        'writing_a_task_suite',
    } <= {path.stem for path in NOTEBOOKS}
