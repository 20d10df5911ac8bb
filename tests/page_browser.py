"""A browser without a window, for pages that are tested as they are drawn."""

import shutil
import subprocess

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')
QUIET = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-sync']


def drawn(page, tmp_path):
    """The page as a browser leaves it, and what the browser said."""
    (tmp_path / 'page.html').write_text(page)
    options = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-component-update', *QUIET]
    options += [f'--user-data-dir={tmp_path / "browser"}', '--enable-logging=stderr', '--dump-dom']
    address = (tmp_path / 'page.html').as_uri()
    ran = subprocess.run([CHROMIUM, *options, address], capture_output=True, timeout=60)
    return ran.stdout.decode(), ran.stderr.decode()
