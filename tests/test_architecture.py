"""The house rules, read from the source: imports point one way, each liberty has its one place."""

import ast
import dataclasses
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = 'cacherl_jax'

# Lowest first.  A room may import itself and every room of a lower line; rooms of one line do not
# know each other.  `tools.tool` holds data types only, with `tools.schema` to check them, so both
# lie below the other tools.
ROOMS = (
    ('keys', 'schedule', 'trajectory', 'mesh', 'processes', 'invented'),
    ('policy',),
    ('tools.schema',),
    ('tools.tool',),
    ('chat',),
    ('tools',),
    ('tool_cache',),
    ('tasks',),
    ('seat',),
    ('rollout',),
    ('rewards', 'rollout_cache', 'grpo'),
    ('supervised',),
    ('evaluate',),
    ('run',),
    ('config', 'bench', 'tool_cache.__main__'),
    ('compose',),
    ('experiments',),
)
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}

DEVICE_READERS = ('rollout', 'run')  # rooms of the package
DEVICE_READS = {'device_get', 'block_until_ready', 'copy_to_host_async', 'addressable_data'}
DEVICE_READS |= {'io_callback', 'pure_callback'}  # the device calling the host is no better
# The boundary behind which other people's code runs: `execute` and the one attempt it makes.
BROAD_EXCEPT = ('cacherl_jax.tools.execute', 'cacherl_jax.tools.attempt')
UNSAFE_MODULES = {'pickle', 'cloudpickle', 'dill', 'marshal', 'shelve', 'joblib'}
VAGUE_NAMES = {'common', 'base'}
VAGUE_WORDS = {'util', 'utils', 'helper', 'helpers', 'manager', 'managers', 'misc'}
TEXT = {'.py', '.md', '.toml', '.txt', '.sh', '.ipynb', '.json', '.jsonl', '.yml', '.yaml', '.cfg'}
TEXT |= {'.jinja', '.html', '.js', '.css'}
MACHINE_PATH = r'(?<![\w.:/>\-])/(?:home|root|Users|work|farm|mnt|private|tmp)/\w[\w.\-/]*'


@dataclasses.dataclass(frozen=True)
class Module:
    """One source file."""

    name: str  # cacherl_jax.tools.tool; a package has its folder's name
    source: str
    is_package: bool = False

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))


@functools.cache
def all_modules() -> tuple[Module, ...]:
    paths = [
        path for top in (PACKAGE, 'experiments') for path in sorted((ROOT / top).rglob('*.py'))
    ]
    return tuple(
        Module(
            '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__'),
            path.read_text(),
            path.name == '__init__.py',
        )
        for path in paths
    )


def package_modules() -> list[Module]:
    return [module for module in all_modules() if module.name.split('.')[0] == PACKAGE]


def room_of(name: str) -> str | None:
    """The room a module lies in, known or not; None for the package itself."""
    inside = name.removeprefix(f'{PACKAGE}.')
    if name == PACKAGE:
        return None
    return inside if inside in LEVEL else inside.split('.')[0]


def imported(module: Module, known: set[str]) -> list[tuple[str, int]]:
    """The project's modules that `module` imports, wherever in the file, with their lines."""
    found = []
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = module.name.split('.')
            here = parts if module.is_package else parts[:-1]
            above = here[: len(here) - node.level + 1] if node.level else []
            source = '.'.join(above + ([node.module] if node.module else []))
            names = [f'{source}.{alias.name}' for alias in node.names]
            found += [(name if name in known else source, node.lineno) for name in names]
    tops = (PACKAGE, 'experiments')
    return [(name, line) for name, line in found if name.split('.')[0] in tops]


def wrong_imports(module: Module, known: set[str]) -> list[str]:
    wrong = []
    for name, line in imported(module, known):
        here, there = room_of(module.name), room_of(name)
        if module.is_package:
            why = 'a package file imports nothing, so that one room does not pull in others'
        elif here not in LEVEL or there not in LEVEL:
            why = f'{there if here in LEVEL else here} is no room of the table'
        elif here == there or LEVEL[there] < LEVEL[here]:
            continue
        else:
            why = f'{there} is not below {here}'
        wrong.append(f'{module.name}:{line} imports {name}: {why}')
    return wrong


def device_reads(module: Module) -> list[str]:
    names = [
        (getattr(node, 'attr', None) or getattr(node, 'id', None), node.lineno)
        for node in module.nodes
        if isinstance(node, ast.Attribute | ast.Name)
    ]
    imports = [node for node in module.nodes if isinstance(node, ast.ImportFrom)]
    names += [(alias.name, node.lineno) for node in imports for alias in node.names]
    return [f'{module.name}:{line} {name}' for name, line in names if name in DEVICE_READS]


def unsafe_code(module: Module) -> list[str]:
    found = []
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [(node.func.id, node)] * (node.func.id in ('eval', 'exec'))
        if isinstance(node, ast.keyword) and node.arg == 'allow_pickle':
            off = isinstance(node.value, ast.Constant) and node.value.value is False
            found += [] if off else [('allow_pickle', node.value)]
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, 'module', None) or '']
            found += [(name, node) for name in names if name.split('.')[0] in UNSAFE_MODULES]
    return [f'{module.name}:{node.lineno} {what}' for what, node in found]


def broad_excepts(module: Module) -> list[str]:
    handlers = [node for node in module.nodes if isinstance(node, ast.ExceptHandler)]
    return [
        f'{module.name}:{handler.lineno}'
        for handler in handlers
        if handler.type is None
        or any(
            getattr(node, 'id', getattr(node, 'attr', '')) in ('Exception', 'BaseException')
            for node in ast.walk(handler.type)
        )
    ]


def function_lines(module: Module) -> list[tuple[int, str]]:
    """Lines of each function, its docstring left out."""
    sizes = []
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            sizes.append((lines, f'{module.name}:{node.lineno} {node.name} has {lines} lines'))
    return sizes


def none(wrong: list[str], law: str) -> None:
    assert not wrong, '\n  '.join([law, *wrong])


def test_imports_point_one_way():
    known = {module.name for module in all_modules()}
    wrong = [line for module in all_modules() for line in wrong_imports(module, known)]
    none(wrong, 'A room may import only itself and rooms below it (ROOMS in this file):')


def test_every_module_lies_in_a_room():
    names = [module.name for module in all_modules() if module.name != PACKAGE]
    homeless = [name for name in names if room_of(name) not in LEVEL]
    none(homeless, 'These modules lie in no room of the table (ROOMS in this file):')


def test_only_the_seam_and_run_read_the_device():
    modules = [module for module in package_modules() if room_of(module.name) not in DEVICE_READERS]
    wrong = [line for module in modules for line in device_reads(module)]
    none(wrong, f'Only {DEVICE_READERS} may wait for the device or read from it:')


def test_nothing_evaluates_text_or_unpickles():
    wrong = [line for module in all_modules() for line in unsafe_code(module)]
    none(wrong, 'Text and files from outside must never become code:')


def test_only_the_tool_boundary_catches_everything():
    modules = [module for module in all_modules() if module.name not in BROAD_EXCEPT]
    wrong = [line for module in modules for line in broad_excepts(module)]
    none(wrong, f'Name the exceptions you expect; only {BROAD_EXCEPT} may catch all:')


def test_names_say_what_a_module_holds():
    names = [module.name for module in all_modules()]
    vague = [name for name in names if VAGUE_NAMES & set(name.split('.'))]
    vague += [name for name in names if VAGUE_WORDS & set(re.split(r'[._]', name))]
    none(vague, f'A module is named after what it holds, not {VAGUE_NAMES | VAGUE_WORDS}:')


def test_every_module_opens_with_its_story():
    modules = [module for module in all_modules() if module.tree.body]  # an empty package has none
    wrong = [module.name for module in modules if not ast.get_docstring(module.tree)]
    none(wrong, 'A module opens with a docstring:')


def test_functions_fit_on_a_screen():
    sizes = sorted(size for module in all_modules() for size in function_lines(module))
    none([text for lines, text in sizes if lines > 60], 'A function has at most 60 lines:')
    tenth = sizes[int(0.9 * len(sizes)) :]
    assert tenth[0][0] <= 30, f'nine in ten functions have at most 30 lines; long ones: {tenth}'


def test_files_have_at_most_300_lines():
    sizes = {module.name: module.source.count('\n') for module in all_modules()}
    none([f'{name} has {lines}' for name, lines in sizes.items() if lines > 300], 'Split the file:')


def text_files() -> list[pathlib.Path]:
    made = ('runs', 'build', 'shared')
    tops = [top for top in ROOT.iterdir() if top.name[0] != '.' and top.name not in made]
    paths = [path for top in tops for path in (top, *top.rglob('*')) if path.suffix in TEXT]
    return sorted(path for path in paths if path.is_file() and path.name != 'test_architecture.py')


@pytest.mark.parametrize(
    ('pattern', 'law'),
    [
        (r'\b(?:TODO|FIXME|XXX)\b', 'Do it, or leave it out:'),
        (MACHINE_PATH, 'A path of one machine means nothing on another:'),
    ],
)
def test_no_text_leaves_work_or_a_machine_behind(pattern, law):
    wrong = []
    for path in text_files():
        found = re.search(pattern, path.read_text(errors='replace'))
        wrong += [f'{path.relative_to(ROOT)}: {found[0]}'] if found else []
    none(wrong, law)


@pytest.mark.parametrize(
    ('name', 'line'),
    [
        ('policy.sample', 'import cacherl_jax.rollout'),
        ('chat.parse', 'from cacherl_jax.tools import execute'),
        ('tool_cache.store', 'from cacherl_jax.tasks.task import Task'),
        ('grpo.loss', 'from ..rewards import hybrid'),
        ('rewards.terms', 'def f():\n    from cacherl_jax import rollout_cache'),
        ('mesh', 'from cacherl_jax.keys import root'),
        ('config', 'from experiments.train import main'),
        ('tools', 'from . import execute'),
        ('run.metrics', 'from cacherl_jax import surprise'),
    ],
)
def test_an_import_against_the_table_is_seen(name, line):
    module = Module(f'{PACKAGE}.{name}', line, is_package=name == 'tools')
    others = ('rollout', 'tools.execute', 'tasks.task', 'rewards.hybrid', 'rollout_cache')
    assert wrong_imports(module, {f'{PACKAGE}.{other}' for other in (*others, 'surprise')})


@pytest.mark.parametrize(
    ('name', 'line'),
    [
        ('chat.parse', 'from cacherl_jax.tools.tool import Call'),
        ('chat.parse', 'from cacherl_jax.tools import tool'),
        ('tools.execute', 'from . import tool'),
        ('rewards.hybrid', 'from cacherl_jax.rewards import facts'),
        ('run.metrics', 'import cacherl_jax.rollout_cache.buffer\nimport json'),
    ],
)
def test_an_import_with_the_table_is_let_through(name, line):
    assert not wrong_imports(Module(f'{PACKAGE}.{name}', line), {f'{PACKAGE}.tools.tool'})


def test_each_liberty_is_seen_however_it_is_written():
    reads = 'from jax import device_get\njax.device_get(x)\nx.block_until_ready()'
    unsafe = 'eval(x)\nexec(x)\nimport pickle\nfrom dill import loads\nload(x, allow_pickle=True)'
    broad = 'try: f()\nexcept (KeyError, Exception): g()\ntry: f()\nexcept: g()'
    assert len(device_reads(Module('x', reads))) == 3
    assert len(unsafe_code(Module('x', unsafe))) == 5
    assert len(broad_excepts(Module('x', broad))) == 2
    assert (
        function_lines(Module('x', 'def f():\n    """One\n\n    two."""\n    return 1'))[0][0] == 2
    )
