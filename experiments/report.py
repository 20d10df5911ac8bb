"""One HTML page of a run: `report.py runs/NAME` writes `runs/NAME/report.html`."""

import pathlib
from typing import Annotated

import tyro

from cacherl_jax.evaluate.report import ReportSettings, render_report
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing

SOURCES = ('metrics.jsonl', 'result.json', 'episodes.jsonl')


@refusing(ValueError)
def report(
    run: Annotated[pathlib.Path, tyro.conf.Positional],
    out: pathlib.Path | None = None,
    page: ReportSettings = ReportSettings(),
) -> None:
    """Writes the report of a run folder.

    Args:
        run: The run's folder.
        out: Where the page goes; report.html in the run's folder when not given.
        page: How much of the run the page holds.
    """
    if not any((run / name).exists() for name in SOURCES):
        raise Refusal(
            f'{run} is not the folder of a run',
            allowed=f'a folder that holds one of {", ".join(SOURCES)}',
            remedy='give the folder that train.py wrote to, such as runs/NAME',
        )
    out = out or run / 'report.html'
    write_atomically(out, render_report(run, page))
    print(out)


if __name__ == '__main__':
    tyro.cli(report)
