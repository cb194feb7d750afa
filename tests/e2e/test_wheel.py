"""The wheel: everything of the package's folders is in it, and it runs by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import surreal
from tests.dockerfile import is_ignored, read_dockerfile, stages

ROOT = Path(__file__).parents[2]
#: What a source distribution has.
SOURCES = ("surreal", "clients", "k8s", "policies", "setup.py", "pyproject.toml", "README.md", "LICENSE")
FOLDERS = {
    "surreal/rlx/demo": "clients/js",
    "surreal/rlx/cpp": "clients/cpp",
    "surreal/rlx/csharp": "clients/csharp",
    "surreal/rlx/godot": "clients/godot",
    "surreal/plugins/clusters/kubernetes/manifests": "k8s",
    "surreal/run/build/policies": "policies",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy: a build leaves folders behind, and takes what an earlier one has left."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    # A template is a file that no module is, and may be called like one.
    template = folder / "source" / "surreal" / "cli" / "templates" / "new" / "environment.py"
    template.parent.mkdir(parents=True)
    template.write_text("# to begin with\n")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist"]
    done = subprocess.run([*build, folder / "source"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (folder / "dist").iterdir()
    return found


def test_everything_in_the_packages_folders_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    inside = {name for name in names if name.startswith("surreal/")}
    tree = {str(path.relative_to(ROOT)) for path in (ROOT / "surreal").rglob("*") if path.is_file()}
    tree = {name for name in tree if "__pycache__" not in name}
    others = {name for name in inside if name.startswith(tuple(FOLDERS))}
    assert inside - others == tree | {"surreal/cli/templates/new/environment.py"}
    for folder, source in FOLDERS.items():
        found = [name.removeprefix(f"{folder}/") for name in others if name.startswith(folder)]
        assert found and all((ROOT / source / name).is_file() for name in found)
    assert {"surreal/rlx/demo/surreal-rlx.mjs", "surreal/rlx/demo/example/index.html"} < inside
    manifests = {str(path.relative_to(ROOT / "k8s")) for path in (ROOT / "k8s").rglob("*.yaml")}
    assert {f"surreal/plugins/clusters/kubernetes/manifests/{name}" for name in manifests} <= inside
    assert {"surreal/run/build/policies/index.json", "surreal/run/build/policies/cartpole-ppo.safetensors"} <= inside
    assert "surreal/rlx/csharp/RlxAgent.cs" in inside
    assert "surreal/rlx/godot/addons/surreal_rlx/rlx_agent.gd" in inside
    assert {"surreal/rlx/cpp/surreal_rlx.hpp", "surreal/distributed/connection/lua/append.lua"} < inside
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "build"))]


@pytest.mark.slow
def test_the_wheel_alone_trains_and_plays(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel]
    subprocess.run(install, check=True)
    # The dependencies are those of the tests; a line in a .pth file does not bring their editable Surreal along.
    packages = Path(sysconfig.get_paths()["purelib"])
    libraries = next((home / "lib").glob("python*/site-packages"))
    (libraries / "dependencies.pth").write_text(f"{packages}\n")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert str(home) in run(python, "-c", "import surreal; print(surreal.__file__)")
    command = home / "bin" / "surreal"
    assert run(command, "--version") == f"surreal {surreal.__version__}\n"
    assert "cartpole-dqn" in run(command, "presets")
    limits = ["--set", "run.max_env_steps=1500", "--set", "eval.episodes=2", "--set", "run.stop_at_return=null"]
    output = run(command, "run", "cartpole-dqn", "--deterministic", "--run-dir", "demo", "--no-progress", *limits)
    assert "results in" in output
    assert "best.pt: torchscript" in run(command, "export", "demo")
    assert "mean return" in run(python, "-m", "surreal", "play", "demo/eval/best.pt", "--episodes", "1")
    assert "mean return 500 " in run(command, "play", "cartpole-ppo", "--episodes", "1")


@pytest.mark.skipif(not os.environ.get("SURREAL_TEST_CLUSTER"), reason="takes a minute: make cluster")
def test_the_steps_of_the_dockerfile_make_what_an_image_has(tmp_path: Path) -> None:
    """No engine can pull its base image here, so its first stage is carried out in folders; packages are those here."""
    source, prefix, own = tmp_path / "src", tmp_path / "surreal", tmp_path / "own"
    source.mkdir()
    # There before the step that makes it, so that it finds the packages of the tests.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    libraries = next((prefix / "lib").glob("python*/site-packages"))
    (libraries / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    inside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    device = "cpu" if metadata.version("torch").endswith("+cpu") else "cuda"
    environment = {**os.environ, **pip, "PATH": inside, "DEVICE": device}
    environment.pop("PYTHONPATH", None)
    ran = []
    for word, value in stages(read_dockerfile(ROOT / "Dockerfile"))[0]:
        if word == "ARG":
            name, _, default = value.partition("=")
            environment.setdefault(name, default)
        elif word == "COPY":
            *names, target = value.split()
            for name in names:
                assert not is_ignored(ROOT / ".dockerignore", name)
                copy(ROOT / name, source / (name if target == "./" else target))
        elif word == "RUN":
            command = ["sh", "-c", value.replace("/opt/surreal", str(prefix)).replace("/own", str(own))]
            done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stdout + done.stderr
            ran.append(value)
        else:
            assert (word, value) == ("WORKDIR", "/src")
    assert len(ran) == 3
    assert not [path for path in libraries.iterdir() if path.name.startswith("surreal")]
    shutil.copytree(own, prefix, dirs_exist_ok=True)

    def run(*command: str) -> str:
        done = subprocess.run(
            [str(prefix / "bin" / "surreal"), *command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    shutil.rmtree(source)
    assert run("--version") == f"surreal {surreal.__version__}\n"
    assert str(prefix) in subprocess.run(
        [prefix / "bin" / "python", "-c", "import surreal; print(surreal.__file__)"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    ).stdout  # fmt: skip
    # The manifests have come along.
    assert "image: registry.example/surreal:7" in run(
        "k8s", "render", "cartpole-dqn", "--image", "registry.example/surreal:7"
    )
    wrong = {**environment, "DEVICE": "tpu"}
    done = subprocess.run(["sh", "-c", ran[0]], cwd=tmp_path, env=wrong, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "DEVICE is tpu; it must be cpu or cuda\n")


def copy(source: Path, target: Path) -> None:
    """As a builder does it, without what Python left behind."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        shutil.copy(source, target)
