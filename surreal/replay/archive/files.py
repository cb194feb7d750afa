"""An archive is a folder: `manifest.json` and `steps-00000.arrow`, ... (or `.parquet`), written whole or not at all.

The writer works in a hidden folder next to the archive's path, and renames it when everything is on the disk. So an
interrupted export never looks like an archive. The reader trusts only what the manifest's checksums cover.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from surreal.base.errors import CodecError, ConfigError
from surreal.base.system.files import sync
from surreal.distributed.experience.codec import Chunk
from surreal.distributed.experience.data_contract import Contract
from surreal.replay.archive.columns import ArchivedChunk, Columns, archive_schema, chunks_of, rows_of, to_record_batch
from surreal.replay.archive.manifest import FILE_FORMATS, MANIFEST_NAME, ArchiveFile, Manifest

#: Uncompressed bytes of a file, after which the next one begins; a chunk is never split.
FILE_BYTES = 256 << 20
#: Uncompressed bytes that are compressed, and later read, at once.
_BATCH_BYTES = 8 << 20
_MAX_MANIFEST_BYTES = 64 << 20
_COMPRESSION = "zstd"


@dataclass(eq=False, repr=False)
class ArchiveWriter:
    """Writes chunks into a new archive: `with ArchiveWriter(...) as writer: writer.add(...); writer.finish(...)`.

    Raises:
        ConfigError: there is something at the path, or its parent cannot be written to.
    """

    path: Path  #: the archive's folder; it must not exist
    contract: Contract
    _: KW_ONLY
    file_format: str = "arrow"  #: arrow (fast, any tool that reads Arrow IPC, also known as Feather) or parquet
    file_bytes: int = FILE_BYTES  #: uncompressed bytes after which the next file begins, >= 1

    def __post_init__(self) -> None:
        path = self.path
        if self.file_format not in FILE_FORMATS:
            formats = " or ".join(FILE_FORMATS)
            raise ConfigError(f"{self.file_format!r} is not a file format; use {formats}", key="--format")
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{path} exists already; name a new folder", key="PATH")
        self.path = path.absolute()
        self._schema = archive_schema(self.contract)
        self._folder = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.partial")
        try:
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error}", key="PATH") from error
        self._files: list[ArchiveFile] = []
        self._senders: dict[str, int] = {}
        self._waiting: list[Columns] = []
        self._waiting_bytes = self._written_bytes = self._stored_bytes = 0
        self._counts = [0, 0, 0]  # chunks, steps, rows of the file that is being written
        self._chunks = 0
        self._writer: Any = None

    def add(self, chunk: Chunk, *, sender: str, sequence: int) -> None:
        index = self._senders.setdefault(sender, len(self._senders))
        rows = rows_of(self.contract, chunk, number=self._chunks, sender=index, sequence=sequence)
        self._chunks += 1
        self._waiting.append(rows)
        self._waiting_bytes += sum(column.nbytes for column in rows.values())
        self._stored_bytes += chunk.stored_bytes
        for i, count in enumerate((1, chunk.own_steps, chunk.num_rows)):
            self._counts[i] += count
        if self._waiting_bytes >= min(_BATCH_BYTES, self.file_bytes):
            self._write_batch()
        if self._written_bytes >= self.file_bytes:
            self._close_file()

    def finish(self, **facts: Any) -> Manifest:
        """Write the manifest with these facts, and put the archive into its place; `ConfigError` if that is taken."""
        self._close_file()
        manifest = Manifest(
            contract=self.contract,
            file_format=self.file_format,
            senders=tuple(self._senders),
            files=tuple(self._files),
            chunks=sum(file.chunks for file in self._files),
            steps=sum(file.steps for file in self._files),
            rows=sum(file.rows for file in self._files),
            stored_bytes=self._stored_bytes,
            **facts,
        )
        with (self._folder / MANIFEST_NAME).open("wb") as file:
            file.write(manifest.to_bytes())
        for path in (*self._folder.iterdir(), self._folder):
            sync(path)
        try:
            self._folder.rename(self.path)
        except OSError as error:
            if self.path.exists():
                raise ConfigError(f"{self.path} was made by another process meanwhile; name a new folder") from error
            raise ConfigError(f"{self.path} cannot be made: {error}", key="PATH") from error
        sync(self.path.parent)
        return manifest

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_batch(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            path = self._folder / self._name
            if self.file_format == "parquet":
                self._writer = pq.ParquetWriter(path, self._schema, compression=_COMPRESSION)
            else:
                options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
                self._writer = pa.ipc.new_file(path, self._schema, options=options)
        self._writer.write_batch(to_record_batch(self.contract, self._schema, self._waiting))
        self._written_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0

    def _close_file(self) -> None:
        self._write_batch()
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        path = self._folder / self._name
        self._files.append(ArchiveFile(self._name, path.stat().st_size, _sha256(path), *self._counts))
        self._counts = [0, 0, 0]
        self._written_bytes = 0

    @property
    def _name(self) -> str:
        return f"steps-{len(self._files):05d}.{self.file_format}"


class ReplayArchive:
    """An existing archive, for reading; raises `CodecError` without one, or as `Manifest.from_bytes`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            size = (path / MANIFEST_NAME).stat().st_size
            text = b"" if size > _MAX_MANIFEST_BYTES else (path / MANIFEST_NAME).read_bytes()
        except OSError as error:
            raise self._broken(f"it has no {MANIFEST_NAME} that can be read ({error.strerror})") from error
        try:
            self.manifest = Manifest.from_bytes(text)
        except CodecError as error:
            raise self._broken(str(error)) from error
        self.contract = self.manifest.contract

    def verify(self) -> None:
        """Compare all files with the manifest; `chunks` checks the rows. Raises `CodecError` if they differ."""
        for file in self.manifest.files:
            path = self.path / file.name
            try:
                size = path.stat().st_size
                if size != file.bytes:
                    raise self._broken(f"{file.name} was cut off or changed: {size} bytes in place of {file.bytes}")
                if _sha256(path) != file.sha256:
                    raise self._broken(f"{file.name} was changed: its SHA-256 differs")
            except OSError as error:
                raise self._broken(f"{file.name} cannot be read ({error.strerror})") from error

    def chunks(self) -> Iterator[ArchivedChunk]:
        """All chunks in order, a few MB at a time; call `verify` first. Raises `CodecError`, which names the row."""
        number = 0
        for file in self.manifest.files:
            counts, row = [0, 0, 0], 0
            try:
                for batch in self._batches(file):
                    for chunk in chunks_of(self.contract, batch, row):
                        if chunk.number != number or not 0 <= chunk.sender < len(self.manifest.senders):
                            raise CodecError(f"chunk {chunk.number} stands where chunk {number} belongs")
                        number += 1
                        size = (1, int(chunk.segments[:, 1].sum()), int(chunk.segments[:, 0].sum()))
                        counts = [before + more for before, more in zip(counts, size, strict=True)]
                        yield chunk
                    row += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                raise self._broken(f"{file.name} cannot be read: {error}") from error
            except CodecError as error:
                raise self._broken(f"{file.name}: {error}") from error
            if counts != [file.chunks, file.steps, file.rows]:
                raise self._broken(f"{file.name} does not hold as much as the manifest says")

    def _batches(self, file: ArchiveFile) -> Iterator[pa.RecordBatch]:
        path, expected = self.path / file.name, archive_schema(self.contract)
        if self.manifest.file_format == "parquet":
            with pq.ParquetFile(path) as parquet:
                _check_schema(parquet.schema_arrow, expected)
                for group in range(parquet.num_row_groups):
                    yield from parquet.read_row_group(group).combine_chunks().to_batches()
            return
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            _check_schema(reader.schema, expected)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)

    def _broken(self, what: str) -> CodecError:
        return CodecError(f"{self.path} is not a whole replay archive: {what}")


def _check_schema(found: pa.Schema, expected: pa.Schema) -> None:
    if not found.equals(expected):
        raise CodecError("its columns are not those of the manifest's contract")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
