"""Who may come to a redis-server: a password, or users and certificates, as settings of the server and as an address.

Used by `embedded.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

#: What a redis-server without TLS says of its settings.
NO_TLS = "tls-port"


@dataclass(frozen=True)
class ServerTls:
    """Files for TLS, all of them PEM.

    Attributes:
        certificate: of the server, and what it is signed with.
        key: its private key.
        authority: whose certificates clients show, and are told to trust; None: that of their machine.
        needs_clients: whether clients must show one.
        client_certificate, client_key: for clients of this machine; None: they have none.
    """

    certificate: Path
    key: Path
    authority: Path | None = None
    needs_clients: bool = False
    client_certificate: Path | None = None
    client_key: Path | None = None


@dataclass(frozen=True)
class ServerAccess:
    """How clients prove who they are.

    Attributes:
        password: of the user in `username`; None: there is none, or it is not known here.
        username: with an ACL file, whose password it is.
        acl_file: with users; None: there is the default user only.
        tls: None: connections are not encrypted.
    """

    password: str | None = None
    username: str | None = None
    acl_file: Path | None = None
    tls: ServerTls | None = None

    @property
    def is_closed(self) -> bool:
        """Whether it takes more than reaching the server to come in."""
        return bool(self.password or self.acl_file)

    def settings(self, port: int) -> dict[str, str | int | Path]:
        """Lines of redis.conf.

        Args:
            port: for clients; 0: only the socket.
        """
        found: dict[str, str | int | Path] = {"port": port}
        if self.acl_file is not None:
            found["aclfile"] = self.acl_file.resolve()
        elif self.password:
            found["requirepass"] = self.password
        if self.tls is not None:
            found |= {
                "port": 0,
                "tls-port": port,
                "tls-cert-file": self.tls.certificate.resolve(),
                "tls-key-file": self.tls.key.resolve(),
                "tls-auth-clients": "yes" if self.tls.needs_clients else "no",
            }
            if self.tls.authority is not None:
                found["tls-ca-cert-file"] = self.tls.authority.resolve()
        return found

    def socket_address(self, path: Path) -> str:
        """Address of a socket, password included."""
        given = {"username": self.username, "password": self.password} if self.password else {}
        query = urlencode({key: value for key, value in given.items() if value}, quote_via=quote)
        return f"unix://{quote(str(path))}{f'?{query}' if query else ''}"

    def tcp_address(self, host: str, port: int) -> str:
        """Address of a port, password included."""
        user = f"{quote(self.username or '', safe='')}:{quote(self.password, safe='')}@" if self.password else ""
        where = f"{user}{f'[{host}]' if ':' in host else host}:{port}"
        if self.tls is None:
            return f"redis://{where}"
        files = {
            "ssl_ca_certs": self.tls.authority,
            "ssl_certfile": self.tls.client_certificate,
            "ssl_keyfile": self.tls.client_key,
        }
        query = urlencode({key: str(path.resolve()) for key, path in files.items() if path is not None})
        return f"rediss://{where}{f'?{query}' if query else ''}"
