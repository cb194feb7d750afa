"""Pages are read as tests/pages.py says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import Kind, PageError, appears, read_page

PAGE = """\
# A page

<!-- where: NAME=demo -->

`part/own.py`:

```python
import sys
```

and then

```bash
surreal run NAME --set a.b=1   # a comment
surreal play runs/NAME \\
    --episodes 1
```

```
12 episodes: mean ...
```

<!-- setup: x = 1 -->
```python
print(x)
```

Add to `part/own.py`, at the end:

```python
print(2)
```

```yaml
# mine.yaml
a: 1
```

<!-- not run: it never ends -->
```bash
surreal redis
```

```
a picture
```
"""


def test_a_page_is_a_row_of_what_a_reader_does(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    blocks = read_page(page)
    kinds = [Kind.FILE, Kind.COMMANDS, Kind.OUTPUT, Kind.PROGRAM, Kind.FILE, Kind.FILE, Kind.COMMANDS, Kind.OUTPUT]
    assert [block.kind for block in blocks] == kinds
    assert [block.file for block in blocks if block.file] == ["part/own.py", "part/own.py", "mine.yaml"]
    assert [block.is_appended for block in blocks if block.file] == [False, True, False]
    assert blocks[1].commands() == ["surreal run demo --set a.b=1", "surreal play runs/demo --episodes 1"]
    assert blocks[3].marks == {"setup": "x = 1"}
    assert [block.is_run for block in blocks] == [True] * 6 + [False, False]
    assert blocks[0].line == 7


@pytest.mark.parametrize("end", ["", "\nProse.\n\n```bash\nls\n```\n"])
def test_a_comment_without_a_block_is_an_error(tmp_path: Path, end: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- not run: a reason -->\n{end}")
    with pytest.raises(PageError, match=r"no block below the comment not run"):
        read_page(page)


def test_lines_appear_in_order_with_other_numbers_and_spaces() -> None:
    output = "log\nepisode 1,234:  mean return 9.75\nended: all is well\n"
    assert appears("episode 5: mean return 100\n...\nended: ...", output) is None
    assert appears("ended: all is well\nepisode 5: mean", output) == "episode 5: mean"
    assert appears("episode 5: best return 1", output) == "episode 5: best return 1"
    assert appears("a (1) [b] ... c", "a (22) [b] x\nc") == "a (1) [b] ... c"
