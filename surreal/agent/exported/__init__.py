"""Acting by a file that `surreal export` wrote, with TorchScript or onnxruntime: `agent.ExportedAgent`.

What such a file is called and says of itself is in `file.py`; `surreal.plugins.export` writes it.
"""

from surreal.agent.exported.agent import ExportedAgent
from surreal.agent.exported.file import FORMATS, MASK, METADATA, NEXT_STATE, STATE, ExportedFile

__all__ = ["FORMATS", "MASK", "METADATA", "NEXT_STATE", "STATE", "ExportedAgent", "ExportedFile"]
