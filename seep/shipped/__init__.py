"""Files shipped with the packages, settings and scripts: a checkout has them at its top, a wheel in this folder.

`config/` and `deploy/` hold them; `setup.py` puts both into the wheel.
"""

from __future__ import annotations

from pathlib import Path


def shipped(folder: str) -> Path:
    """Returns the path of the project's folder `config` or `deploy`.

    >>> sorted(path.name for path in (shipped("deploy") / "templates").iterdir())
    ['install.sh', 'master.sh', 'worker.sh']
    """
    installed = Path(__file__).with_name(folder)
    return installed if installed.is_dir() else Path(__file__).parents[2] / folder


def settings_file(path: Path) -> Path:
    """The path itself; for a path config/NAME that is not there, the file of that name that came with the packages.

    >>> settings_file(Path("mine.yaml"))
    PosixPath('mine.yaml')
    >>> settings_file(Path("config/balance.yaml")).is_file()
    True
    """
    if path.exists() or path.parent != Path("config"):
        return path
    own = shipped("config") / path.name
    return own if own.is_file() else path
