"""How further packages are installed, for hints that can be copied."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

_NAME = "keras-xmr"
_CLONE = Path(__file__).resolve().parents[2]


def install_command(extra: str) -> str:
    """Returns the command that installs an extra of this package.

    The command names the clone that this process runs in, or the wheel that this package was
    installed from, if pip has noted it: no registry has the package.
    """
    source = str(_CLONE) if (_CLONE / "pyproject.toml").is_file() else _source()
    name, _, address = (source or _NAME).partition(" @ ")
    wanted = f"{name}[{extra}]" + (f" @ {address}" if address else "")
    return f"pip install {shlex.quote(wanted)}"


def _source() -> str:
    """Returns the path or address that this package was installed from; may be empty."""
    # Every search imports the module, and hardly one needs a hint.
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        noted = distribution(_NAME).read_text("direct_url.json")
        url = str(json.loads(noted or "{}").get("url", ""))
    except (PackageNotFoundError, ValueError, AttributeError):
        return ""
    return unquote(urlsplit(url).path) if url.startswith("file:") else url and f"{_NAME} @ {url}"
