"""The table of faults, and that each of them can be found."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import yaml

from surreal.config import Config
from surreal.envs import make_env
from surreal.envs.wrappers.named import WrapperSpec, apply_wrappers
from surreal.plugins.doctor.finding import FAULTS

ROOT = Path(__file__).parents[3]
DOCTOR = ROOT / "surreal" / "plugins" / "doctor"


def test_every_fault_has_a_name_of_its_own_a_cause_and_a_remedy() -> None:
    names = re.findall(r"^  (\S+):$", (DOCTOR / "faults.yaml").read_text(), re.MULTILINE)
    assert len(names) == len(FAULTS) >= 80  # the reader would keep only the last of one name
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
    assert all(fault.cause.endswith(".") and fault.remedy for fault in FAULTS.values())


def test_settings_that_remedies_name_exist() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    texts = [page, *(f"{fault.cause} {fault.remedy}" for fault in FAULTS.values())]
    named = {match for text in texts for match in re.findall(r"\b([a-z_]+)\.([a-z_]+)", text)}
    sections = {name: field.annotation for name, field in Config.model_fields.items()}
    known = {(name, key) for name, key in named if hasattr(sections.get(name), "model_fields")}
    others = {"class", "conf", "log", "md"}  # another name, and files
    wrong = {(name, key) for name, key in known if key not in {*sections[name].model_fields, *others}}
    assert len(known) > 25 and not wrong


def test_wrappers_that_remedies_name_exist_with_these_arguments() -> None:
    env = make_env("CartPole-v1")
    for fault in FAULTS.values():
        for text in re.findall(r"env\.wrappers: (\[.*?\])(?=[;,]|$)", fault.remedy):
            for entry in yaml.safe_load(text):
                apply_wrappers(env, [WrapperSpec(entry["name"], entry["args"])], training=True)


def test_every_fault_is_used_by_a_check_and_planted_in_a_test() -> None:
    checks = "\n".join(path.read_text() for path in DOCTOR.glob("*.py"))
    tests = [*(ROOT / "tests/plugins/doctor").glob("*.py"), *(ROOT / "tests/integration").glob("test_doctor_*.py")]
    planted = "\n".join(path.read_text() for path in tests)
    for name in FAULTS:
        assert f'"{name}"' in checks, f"{name} is found by no check"
        assert f'"{name}"' in planted, f"{name} is planted in no test"


def test_every_fault_that_a_check_names_is_in_the_table() -> None:
    for path in DOCTOR.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fault":
                names = [each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)]
                assert {name for name in names if isinstance(name, str)} <= FAULTS.keys(), f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "judge":
                cases = [each.elts[1] for each in node.args[1:] if isinstance(each, ast.Tuple)]
                assert all(ast.literal_eval(name) in FAULTS for name in cases), f"{path}:{node.lineno}"
