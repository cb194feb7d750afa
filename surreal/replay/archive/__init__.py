"""Replays in files: exported from a stream, readable with Arrow tools, imported again. It imports no sibling."""

from surreal.replay.archive.exporting import export_replay
from surreal.replay.archive.files import ArchiveWriter, ReplayArchive
from surreal.replay.archive.importing import ImportResult, import_replay
from surreal.replay.archive.manifest import ArchiveFile, Manifest

__all__ = [
    "ArchiveFile", "ArchiveWriter", "ImportResult", "Manifest", "ReplayArchive", "export_replay", "import_replay",
]  # fmt: skip
