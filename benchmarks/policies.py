"""Collect the best policies of `make learn` into policies/, with their digests, and write docs/pretrained.md.

    python -m benchmarks.policies                 the best policy of each preset that has runs on this machine
    python -m benchmarks.policies cartpole-ppo    only of these presets
    python -m benchmarks.policies --write         only write the page

A policy takes the place of another one if more of its return is sure: the mean over the fresh episodes of its record,
less a standard error. Those that are larger than `surreal.load` accepts are named and left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learn import runs_folder
from benchmarks.results import read_records
from surreal.base.checkpoint import load_checkpoint
from surreal.base.checkpoint.format import encode_checkpoint
from surreal.config import load_config, preset_names
from surreal.run.build.saved_policy import BEST_POLICY, INDEX_NAME, MAX_BYTES, PolicyEntry, PolicyIndex, read_index
from surreal.run.process.run_folder import RESULT_NAME

_ROOT = Path(__file__).parents[1]
FOLDER = _ROOT / "policies"
PAGE = _ROOT / "docs" / "pretrained.md"

_HEAD = """\
# Pretrained policies

The table is written by `make policies`. These policies come with Surreal, each with the name of the preset that it
learned with. Every command and function that takes a policy takes the name, unless a file or a run has it too:

```bash
surreal play cartpole-ppo --episodes 3
surreal export cartpole-ppo -o policy.pt
```

```python
import surreal

policy = surreal.load("cartpole-ppo")
print(surreal.evaluate(policy, episodes=20, seed=0).mean_return)
```

- [The policies](#the-policies)
- [Other places](#other-places)
- [What is verified](#what-is-verified)

## The policies

The return is the mean over fresh episodes without exploration, with its standard error, as in [Results](results.md).
Env steps are those of the run, up to its end.

| policy | environment | return | standard error | episodes | env steps | seed |
|---|---|---|---|---|---|---|
"""

_TAIL = """\
## Other places

`SURREAL_POLICIES`, or `surreal.load(name, policies=...)`, names another folder, or an https address:

<!-- not run: the address is an example -->
```bash
SURREAL_POLICIES=https://policies.example.org/surreal surreal play cartpole-ppo
```

The place has one file per policy, `NAME.safetensors` of at most 1 MB, and `index.json`:

```text
{"version": 1, "policies": {"cartpole-ppo": {
  "sha256": "b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c",
  "mean_return": 500.0, "standard_error": 0.0, "episodes": 1000, "env_steps": 27392, "seed": 0}}}
```

`make policies` writes both into `policies/`: the best policy of each preset that `make learn` has run on this machine.
`make policies PRESETS="cartpole-ppo pendulum-sac"` collects only these. A policy with a better return stays. A web
server that serves this folder is such a place. `SSL_CERT_FILE` names the certificate of a private authority.

## What is verified

- A file is compared with its SHA-256 digest in the index before anything in it is read. A file that was changed, cut
  off or confused with another one is refused.
- The index has no signature. A person who controls the folder or the address can replace both. This is why plain http
  is refused, also in a redirection.
- Nothing in a file is executed: it holds numbers and the configuration of a run. As for [any policy from a
  stranger](security.md#policies-from-strangers), only classes of Surreal and environments that are registered with
  gymnasium are used, unless you add `--trust`.
"""


def main(argv: Sequence[str]) -> int:
    """Collect the requested policies, and write the index and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", help="presets (default: all)")
    parser.add_argument("--write", action="store_true", help="only write the page")
    asked = parser.parse_args(argv)
    if not asked.write:
        collect(asked.presets or preset_names())
    PAGE.write_text(page(read_index(str(FOLDER))), encoding="utf-8")
    return 0


def collect(presets: Sequence[str]) -> None:
    """Copy the best policy of each preset's recorded runs, unless the folder has a better one."""
    FOLDER.mkdir(exist_ok=True)
    policies = read_index(str(FOLDER)).policies if (FOLDER / INDEX_NAME).exists() else {}
    for preset in presets:
        for path, record in _recorded(preset):
            data = _encode(path)
            known = {name: record[name] for name in ("mean_return", "standard_error", "episodes", "env_steps", "seed")}
            entry = PolicyEntry(sha256=hashlib.sha256(data).hexdigest(), **known)
            if preset in policies and sure_return(policies[preset]) >= sure_return(entry):
                continue
            if len(data) > MAX_BYTES:
                print(f"{path} has {len(data):,} bytes, more than {MAX_BYTES:,}: left out")
                continue
            (FOLDER / f"{preset}.safetensors").write_bytes(data)
            policies[preset] = entry
    index = PolicyIndex(policies=dict(sorted(policies.items())))
    (FOLDER / INDEX_NAME).write_text(index.model_dump_json(indent=1) + "\n", encoding="utf-8")


def sure_return(entry: PolicyEntry) -> float:
    """Return the mean return, less a standard error."""
    return entry.mean_return - entry.standard_error


def _recorded(preset: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the policy file and the record of each run of a preset whose folder is on this machine."""
    for seed, record in read_records().get((preset, ()), {}).items():
        folder = runs_folder() / f"{preset}-{seed}"
        if "standard_error" not in record or not (folder / BEST_POLICY).exists():
            continue
        if json.loads((folder / RESULT_NAME).read_text(encoding="utf-8"))["env_steps"] == record["env_steps"]:
            yield folder / BEST_POLICY, {**record, "mean_return": record["return"]}


def _encode(path: Path) -> bytes:
    """Encode a policy without the folders of the machine where it learned."""
    checkpoint = load_checkpoint(path)
    metadata = dict(checkpoint.metadata)
    metadata["config"] = {**metadata["config"], "python_path": []}
    return encode_checkpoint(checkpoint.tensors, metadata, step=checkpoint.step)


def page(index: PolicyIndex) -> str:
    """Write the page of the policies."""
    rows = [
        f"| `{name}` | {load_config(name).env.id} | {entry.mean_return:.4g} | {entry.standard_error:.2g} | "
        f"{entry.episodes:,} | {entry.env_steps:,} | {entry.seed} |"
        for name, entry in index.policies.items()
    ]
    return _HEAD + "\n".join(rows) + "\n\n" + _TAIL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
