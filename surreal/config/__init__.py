"""Typed configuration: one YAML file or a named preset, checked completely before anything starts.

Cheap to import: no torch, no Redis, no environments. Only `surreal.run.build` turns a `Config` into objects.

schema/        every setting, with its meaning, its limits, and what does not fit together
classes.py     classes named in a configuration, and their arguments
loading.py     files, presets and overrides
problems.py    one sentence for what is wrong
"""

from surreal.config.classes import accepted_names, add_python_path, check_args, default_values, import_class
from surreal.config.fingerprint import diff_shared, fingerprint
from surreal.config.loading import load_config, to_yaml
from surreal.config.preset_files import preset_names, preset_path
from surreal.config.schema.root import Config

__all__ = [
    "Config", "accepted_names", "add_python_path", "check_args", "default_values", "diff_shared", "fingerprint",
    "import_class", "load_config", "preset_names", "preset_path", "to_yaml",
]  # fmt: skip
