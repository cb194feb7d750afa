"""The page of faults, and that each of them can be found."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import yaml

from surreal.config import Config
from surreal.envs import make_env
from surreal.envs.wrappers.named import WrapperSpec, apply_wrappers
from surreal.plugins.doctor.report import all_faults, render

ROOT = Path(__file__).parents[3]
DOCTOR = ROOT / "surreal" / "plugins" / "doctor"
FAULTS = [fault for faults in all_faults().values() for fault in faults]


def test_the_page_of_faults_is_what_the_code_says() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    assert render() in page, "docs/doctor.md is not what the faults say; run: make docs"


def test_every_fault_has_a_name_of_its_own_a_cause_and_a_remedy() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 80
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
    assert all(fault.cause.endswith(".") and fault.remedy for fault in FAULTS)


def test_settings_that_remedies_name_exist() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    texts = [page, *(f"{fault.cause} {fault.remedy}" for fault in FAULTS)]
    named = {match for text in texts for match in re.findall(r"\b([a-z_]+)\.([a-z_]+)", text)}
    sections = {name: field.annotation for name, field in Config.model_fields.items()}
    known = {(name, key) for name, key in named if hasattr(sections.get(name), "model_fields")}
    others = {"class", "conf", "log", "md"}  # another name, and files
    wrong = {(name, key) for name, key in known if key not in {*sections[name].model_fields, *others}}
    assert len(known) > 25 and not wrong


def test_wrappers_that_remedies_name_exist_with_these_arguments() -> None:
    env = make_env("CartPole-v1")
    for fault in FAULTS:
        for text in re.findall(r"env\.wrappers: (\[.*?\])(?=[;,]|$)", fault.remedy):
            for entry in yaml.safe_load(text):
                apply_wrappers(env, [WrapperSpec(entry["name"], entry["args"])], training=True)


def test_every_fault_is_used_by_a_check_and_planted_in_a_test() -> None:
    checks = "\n".join(path.read_text() for path in DOCTOR.rglob("*.py") if path.name != "faults.py")
    tests = [*(ROOT / "tests/plugins/doctor").glob("*.py"), *(ROOT / "tests/integration").glob("test_doctor_*.py")]
    planted = "\n".join(path.read_text() for path in tests)
    for path in DOCTOR.rglob("faults.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                constant, name = ast.unparse(node.targets[0]), ast.literal_eval(node.value.args[0])
                assert re.search(rf"\b{constant}\b", checks.replace(f"    {constant},\n", "")), constant
                assert f'"{name}"' in planted, f"{name} is planted in no test"
