"""Tests of the environment, without a run: `pytest` in the app's folder. Node tests the rules, if it is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_the_page_has_all_that_it_names() -> None:
    page = (HERE / "index.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'id="(\w+)"', page))
    assert set(re.findall(r'element\("(\w+)"\)', (HERE / "page.mjs").read_text(encoding="utf-8"))) <= ids
    assert (HERE / re.findall(r'src="([^"]+)"', page)[0]).is_file()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_rules() -> None:
    command = ["node", "--test", HERE / "bandit.test.mjs"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
