"""Replays in files: exported from a stream, readable with any Arrow tool, imported into another stream.

It knows no other room.
"""

from surreal.replay.archive.files import ArchiveWriter, ReplayArchive
from surreal.replay.archive.manifest import ArchiveFile, Manifest
from surreal.replay.archive.transfer import ImportResult, export_replay, import_replay

__all__ = [
    "ArchiveFile",
    "ArchiveWriter",
    "ImportResult",
    "Manifest",
    "ReplayArchive",
    "export_replay",
    "import_replay",
]
