"""The page of faults, and that each of them can be found."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from surreal.doctor.reference import all_faults, render

ROOT = Path(__file__).parents[3]
DOCTOR = ROOT / "surreal" / "doctor"
FAULTS = [fault for faults in all_faults().values() for fault in faults]


def test_the_page_of_faults_is_what_the_code_says() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    assert render() in page, "docs/doctor.md is not what the faults say; run: make docs"


def test_every_fault_has_a_name_of_its_own_a_cause_and_a_remedy() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 80
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
    assert all(fault.cause.endswith(".") and fault.remedy for fault in FAULTS)


def test_every_fault_is_used_by_a_check_and_planted_in_a_test() -> None:
    checks = "\n".join(path.read_text() for path in DOCTOR.rglob("*.py") if path.name != "faults.py")
    tests = [*(ROOT / "tests/unit/doctor").glob("*.py"), *(ROOT / "tests/integration").glob("test_doctor_*.py")]
    planted = "\n".join(path.read_text() for path in tests)
    for path in DOCTOR.rglob("faults.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                constant, name = ast.unparse(node.targets[0]), ast.literal_eval(node.value.args[0])
                assert re.search(rf"\b{constant}\b", checks.replace(f"    {constant},\n", "")), constant
                assert f'"{name}"' in planted, f"{name} is planted in no test"
