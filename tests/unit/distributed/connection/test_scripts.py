from __future__ import annotations

import hashlib
import re
from importlib.resources import files

import pytest

from surreal.distributed.connection.wire import load_script

LUA = sorted(path.name.removesuffix(".lua") for path in (files("surreal.distributed.connection") / "lua").iterdir())


def test_script_is_known_by_the_digest_of_its_text() -> None:
    script = load_script("publish")
    assert script.sha1 == hashlib.sha1(script.text).hexdigest()
    assert load_script("publish") is script


@pytest.mark.parametrize("name", ["nothing", "../client", ""])
def test_unknown_script_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no Lua script"):
        load_script(name)


@pytest.mark.parametrize("name", ["publish", "hold"])
def test_every_key_a_script_touches_is_in_keys(name: str) -> None:
    text = re.sub(r"--.*", "", load_script(name).text.decode())
    assert "local params, lease = KEYS[1], KEYS[2]" in text
    keys = set(re.findall(r"redis\.call\('(?!PUBLISH)\w+', ([\w.]+)", text))
    assert keys <= {"params", "lease", "KEYS"}


def test_scripts_are_there() -> None:
    assert {"hold", "publish"} <= set(LUA)
