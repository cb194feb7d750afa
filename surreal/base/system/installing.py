"""`install_command`: what to type so that an extra of this installation is there."""

from __future__ import annotations

import json
import shlex
from importlib import metadata
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "surreal-rl"


def install_command(extra: str) -> str:
    """Give the command that adds an extra.

    It names where this installation came from, which pip has written down (PEP 610): a clone, a file, or an index.

    Args:
        extra: name of an extra of setup.py.
    """
    try:
        origin = json.loads(metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        url, is_editable = str(origin.get("url", "")), bool(origin.get("dir_info", {}).get("editable"))
        is_folder = "dir_info" in origin
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        url, is_editable, is_folder = "", False, False
    if is_folder:
        folder = unquote(urlsplit(url).path)
        return f"pip install {'-e ' if is_editable else ''}{shlex.quote(f'{folder}[{extra}]')}"
    if url:
        return f"pip install {shlex.quote(f'{DISTRIBUTION}[{extra}] @ {url}')}"
    return f"pip install {shlex.quote(f'{DISTRIBUTION}[{extra}]')}"
