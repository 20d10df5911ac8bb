"""Notebooks run with the slow tests, and need what requirements-dev.txt lists."""

import importlib.util

import pytest


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.suffix == '.ipynb':
            item.add_marker(pytest.mark.slow)
            if importlib.util.find_spec('matplotlib') is None:
                reason = 'matplotlib is missing: pip install -r requirements-dev.txt'
                item.add_marker(pytest.mark.skip(reason=reason))
