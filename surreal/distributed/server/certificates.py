"""Self-signed certificates: an authority, a certificate of a server, and one for all clients.

The openssl program makes them, for `surreal redis --tls` without given files; an RLX server can use the same files.
Clients must be told to trust `ca.crt`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from surreal.base.errors import ConfigError

#: Validity, days. Python and browsers refuse server certificates that are valid for longer.
_DAYS = 825
_AUTHORITY_DAYS = 3650
_CONFIG = """[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
authorityKeyIdentifier = keyid
subjectAltName = {hosts}
[client]
basicConstraints = CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
authorityKeyIdentifier = keyid
"""


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
    names = ("ca.crt", "server.crt", "server.key", "client.crt", "client.key")
    files = CertificateFiles(*(folder / name for name in names))
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
    known = ",".join(_alternative_name(host) for host in dict.fromkeys(["localhost", "127.0.0.1", "::1", *hosts]))
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as made:
        maker = _Maker(openssl, Path(made), known)
        authority_key = folder / "ca.key"
        if not (files.authority.exists() and authority_key.exists()):
            maker.authority(files.authority, authority_key)
        maker.signed("server", files.server, files.server_key, (files.authority, authority_key))
        maker.signed("client", files.client, files.client_key, (files.authority, authority_key))
    return files


class _Maker:
    """Calls openssl; files are made in a temporary folder, and moved when they are complete."""

    def __init__(self, openssl: str, folder: Path, hosts: str) -> None:
        self._openssl = openssl
        self._folder = folder
        self._hosts = hosts

    def authority(self, certificate: Path, key: Path) -> None:
        config = self._config("authority")
        self._key(key)
        made = self._folder / certificate.name
        days = ["-days", str(_AUTHORITY_DAYS)]
        self._run(["req", "-x509", "-new", "-key", str(key), "-config", config, "-extensions", "authority", *days,
                   "-out", str(made)])  # fmt: skip
        made.replace(certificate)

    def signed(self, name: str, certificate: Path, key: Path, authority: tuple[Path, Path]) -> None:
        config, request, made = self._config(name), self._folder / "request", self._folder / certificate.name
        self._key(key)
        self._run(["req", "-new", "-key", str(key), "-config", config, "-out", str(request)])
        signer = ["-CA", str(authority[0]), "-CAkey", str(authority[1]), "-set_serial", f"0x{os.urandom(16).hex()}"]
        self._run(["x509", "-req", "-in", str(request), *signer, "-days", str(_DAYS), "-extfile", config,
                   "-extensions", name, "-out", str(made)])  # fmt: skip
        made.replace(certificate)

    def _key(self, path: Path) -> None:
        made = self._folder / path.name
        self._run(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(made)])
        made.chmod(0o600)
        made.replace(path)

    def _config(self, name: str) -> str:
        path = self._folder / f"{name}.conf"
        path.write_text(_CONFIG.format(name=f"Surreal {name}", hosts=self._hosts))
        return str(path)

    def _run(self, arguments: Sequence[str]) -> None:
        done = subprocess.run([self._openssl, *arguments], capture_output=True, text=True, check=False, umask=0o077)
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[-300:]
            raise ConfigError(f"openssl {arguments[0]} failed: {said}", key="--tls")


def _alternative_name(host: str) -> str:
    is_address = ":" in host or host.replace(".", "").isdigit()
    return f"{'IP' if is_address else 'DNS'}:{host}"
