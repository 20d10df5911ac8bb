"""Pages that need nothing but themselves: a template of `page/` and data in, one HTML text out."""

import importlib.resources
import json
import re
from typing import Any


def _script_json(value: Any) -> str:
    """JSON that no HTML parser takes for markup; non-ASCII is escaped too."""
    text = json.dumps(value, separators=(',', ':'))
    return text.replace('<', '\\u003c').replace('>', '\\u003e').replace('&', '\\u0026')


def page_with(template: str, data: Any) -> str:
    """The template with the files that it names, and the data where it says `run`."""
    folder = importlib.resources.files('cacherl_jax.evaluate') / 'page'
    inserted = _script_json(data)

    def part(match):
        name = match[1]
        return inserted if name == 'run' else (folder / name).read_text(encoding='utf-8').strip()

    # One pass over the template: what is inserted is not looked at again.
    text = (folder / template).read_text(encoding='utf-8')
    return re.sub(r'<!-- insert ([\w.]+) -->', part, text)
