"""Acting by a file that `surreal export` wrote, with TorchScript or onnxruntime: `agent.ExportedAgent`.

`file.py` defines the names and the metadata of such a file; `surreal.plugins.export` writes it.
"""

from surreal.agent.exported.agent import ExportedAgent
from surreal.agent.exported.file import FORMATS, MASK, METADATA, NEXT_STATE, STATE, ExportedFile

__all__ = ["FORMATS", "MASK", "METADATA", "NEXT_STATE", "STATE", "ExportedAgent", "ExportedFile"]
