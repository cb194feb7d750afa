"""Self-signed certificates: an authority, a certificate of a server, and one for all clients.

The openssl program makes them, for `surreal redis --tls` without given files; an RLX server can use the same files.
Clients must be told to trust `ca.crt`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from surreal.base.errors import ConfigError

#: Validity, days. Python and browsers refuse server certificates that are valid for longer.
_DAYS = 825
_AUTHORITY_DAYS = 3650


class CertificateFiles(NamedTuple):
    """Paths of the certificates and keys."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(folder: Path, hosts: Iterable[str]) -> CertificateFiles:
    """Make the certificates that a folder lacks; existing ones stay.

    Args:
        folder: made if it is missing.
        hosts: names and addresses of the server, besides localhost.

    Raises:
        ConfigError: there is no openssl, or it fails.
        OSError: a file cannot be written.
    """
    paths = ("ca.crt", "server.crt", "server.key", "client.crt", "client.key")
    files = CertificateFiles(*(folder / path for path in paths))
    if all(path.exists() for path in files):
        return files
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ConfigError(
            "--tls makes certificates with openssl, which is not installed; install it, or name files: "
            "--tls-cert, --tls-key, --tls-ca",
            key="--tls",
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    names = dict.fromkeys(["localhost", "127.0.0.1", "::1", *hosts])
    known = ",".join(f"{'IP' if ':' in name or name.replace('.', '').isdigit() else 'DNS'}:{name}" for name in names)
    authority_key = folder / "ca.key"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as made:
        make = partial(_make, openssl, Path(made), known)
        if not (files.authority.exists() and authority_key.exists()):
            make("authority", files.authority, authority_key)
        signer = (files.authority, authority_key)
        make("server", files.server, files.server_key, signer=signer)
        make("client", files.client, files.client_key, signer=signer)
    return files


def _make(
    openssl: str,
    folder: Path,
    hosts: str,
    name: str,
    certificate: Path,
    key: Path,
    signer: tuple[Path, Path] | None = None,
) -> None:
    """Make a certificate and its key in a temporary folder, and move them when they are complete.

    Without a signer, it signs itself.
    """

    def call(*arguments: str) -> None:
        done = subprocess.run([openssl, *arguments], capture_output=True, text=True, check=False, umask=0o077)
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[-300:]
            raise ConfigError(f"openssl {arguments[0]} failed: {said}", key="--tls")

    config, made, made_key = folder / f"{name}.conf", folder / certificate.name, folder / key.name
    text = files(__package__).joinpath("openssl.cnf").read_text(encoding="ascii")
    config.write_text(text.format(name=f"Surreal {name}", hosts=hosts))
    call("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(made_key))
    made_key.chmod(0o600)
    made_key.replace(key)
    request = ["req", "-new", "-key", str(key), "-config", str(config)]
    if signer is None:
        call(*request, "-x509", "-extensions", name, "-days", str(_AUTHORITY_DAYS), "-out", str(made))
    else:
        asked = str(folder / "request")
        call(*request, "-out", asked)
        by = ["-CA", str(signer[0]), "-CAkey", str(signer[1]), "-set_serial", f"0x{os.urandom(16).hex()}"]
        extensions = ["-extfile", str(config), "-extensions", name]
        call("x509", "-req", "-in", asked, *by, "-days", str(_DAYS), *extensions, "-out", str(made))
    made.replace(certificate)
