"""The manifest of an archive, `manifest.json`: its contract, its files with their SHA-256, and its counts.

It is written last and has its own checksum, so a folder without a whole manifest is not an archive. The checksum is
also the archive's id.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from surreal.base.errors import CodecError
from surreal.distributed.experience.data_contract import FORMAT_VERSION, Contract

ARCHIVE_FORMAT = "surreal-replay"
ARCHIVE_VERSION = 1
MANIFEST_NAME = "manifest.json"
FILE_FORMATS = ("arrow", "parquet")

_FILE_NAME = re.compile(r"steps-[0-9]{5,9}\.(arrow|parquet)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COUNTS = ("chunks", "steps", "rows", "stored_bytes", "evicted_chunks", "refused_chunks", "global_step")


@dataclass(frozen=True)
class ArchiveFile:
    """One of an archive's files."""

    name: str
    bytes: int
    sha256: str
    chunks: int
    steps: int
    rows: int


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`.

    Attributes:
        contract: the stream's contract.
        run: id of the run it was exported from.
        created: time of creation, s since 1970.
        surreal_version: version of the program that wrote it.
        file_format: arrow or parquet.
        senders: incarnations of the senders, as the `sender` column counts them.
        files: in order.
        chunks, steps, rows: of all files; lookahead does not count as steps.
        stored_bytes: approximate size of the chunks in Redis.
        evicted_chunks: were there when the export began, and gone when it came to them.
        refused_chunks: could not be decoded.
        global_step: env steps of the run when the export began.
    """

    contract: Contract
    run: str
    created: float
    surreal_version: str
    file_format: str
    senders: tuple[str, ...]
    files: tuple[ArchiveFile, ...]
    chunks: int
    steps: int
    rows: int
    stored_bytes: int
    evicted_chunks: int = 0
    refused_chunks: int = 0
    global_step: int = 0

    @cached_property
    def id(self) -> str:
        """SHA-256 of everything else in it."""
        return _checksum(self._content())

    def to_bytes(self) -> bytes:
        return json.dumps({**self._content(), "checksum": self.id}, indent=2).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Manifest:
        """Read a manifest; raises `CodecError` if it was cut off or changed, or is of another version."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CodecError(f"{MANIFEST_NAME} is cut off or no JSON ({error})") from error
        if not isinstance(data, dict) or data.get("format") != ARCHIVE_FORMAT:
            raise CodecError(f"{MANIFEST_NAME} is not that of a replay's archive")
        if data.get("format_version") != ARCHIVE_VERSION:
            raise CodecError(
                f"it has archive format {data.get('format_version')}; this program reads {ARCHIVE_VERSION}"
            )
        if data.pop("checksum", None) != _checksum(data):
            raise CodecError(f"{MANIFEST_NAME} was changed: its checksum differs")
        try:
            return cls._from_json(data)
        except (KeyError, TypeError, ValueError) as error:
            raise CodecError(f"{MANIFEST_NAME} cannot be read ({error})") from error

    @classmethod
    def _from_json(cls, data: dict[str, Any]) -> Manifest:
        # An archive outlives formats of the wire, so the contract's format number is not part of it.
        contract = Contract.from_bytes(json.dumps({**data["contract"], "format": FORMAT_VERSION}).encode())
        files = tuple(ArchiveFile(**file) for file in data["files"])
        if data["file_format"] not in FILE_FORMATS:
            raise ValueError(f"file_format is {data['file_format']!r}")
        for file in files:
            if not _FILE_NAME.fullmatch(file.name) or not file.name.endswith(data["file_format"]):
                raise ValueError(f"{file.name[:60]!r} is not a file name of an archive")
            if not _SHA256.fullmatch(file.sha256):
                raise ValueError(f"{file.name} has no SHA-256")
            _check_counts(asdict(file), ("bytes", "chunks", "steps", "rows"))
        _check_counts(data, _COUNTS)
        for name in ("chunks", "steps", "rows"):
            if sum(getattr(file, name) for file in files) != data[name]:
                raise ValueError(f"the files' {name} do not add up")
        senders = tuple(str(sender) for sender in data["senders"])
        return cls(
            contract,
            run=str(data["run"]),
            created=float(data["created"]),
            surreal_version=str(data["surreal_version"]),
            file_format=data["file_format"],
            senders=senders,
            files=files,
            **{name: data[name] for name in _COUNTS},
        )

    def _content(self) -> dict[str, Any]:
        contract = self.contract.to_json()
        del contract["format"]
        return {
            "format": ARCHIVE_FORMAT,
            "format_version": ARCHIVE_VERSION,
            "run": self.run,
            "created": self.created,
            "surreal_version": self.surreal_version,
            "contract": contract,
            **{name: getattr(self, name) for name in _COUNTS},
            "senders": list(self.senders),
            "file_format": self.file_format,
            "files": [asdict(file) for file in self.files],
        }


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _check_counts(data: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if type(data[name]) is not int or data[name] < 0:
            raise ValueError(f"{name} is {data[name]!r}; it must be an integer >= 0")
