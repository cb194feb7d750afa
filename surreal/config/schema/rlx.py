"""Servers to which environments elsewhere connect, clients that a run starts itself, and what others read here."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from surreal.config.schema.fields import Section, Size


class RlxConfig(Section):
    """Servers of the RLX protocol, and how they treat their clients."""

    servers: int = Field(0, ge=0, le=256)
    """Server processes that `surreal run` starts, all on the same port; more use more cores. Others may join from
    elsewhere at any time."""

    clients: int = Field(0, ge=0, le=1024)
    """`rlx-client` processes that `surreal run` starts, which play `env.id`; 0 if clients come from elsewhere."""

    client_envs: int = Field(1, ge=1, le=1024)
    """Environments of each of these client processes, each with a connection of its own."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on; 0.0.0.0 or :: lets other machines in, for which there should be a token and TLS."""

    port: int = Field(7001, ge=0, le=65535)
    """Port for TCP, WebSocket and HTTP alike; 0: a free one."""

    max_sessions: int | None = Field(1024, ge=1)
    """Sessions of one server open at the same time; unset: as many as the memory allows."""

    memory_reserve: Size = 64 * 2**20
    """Memory that stays free, "64mb" may be written: a new session is refused when it would not."""

    timeout_s: float | None = Field(None, gt=0)
    """Age in s at which a connection is closed at its next episode's end, so that clients spread again behind a
    balancer; unset: never."""

    idle_timeout_s: float | None = Field(600.0, gt=0)
    """Time in s without a request after which a connection is closed; unset: never."""

    token_file: str | None = Field(None, min_length=1)
    """File with the token that clients must show; unset: the variable SURREAL_RLX_TOKEN, else none is asked for."""

    origins: list[str] = []
    """Where else web pages that connect may come from, such as `https://example.org`; `*`: from anywhere. Pages of this
    machine and of the server itself always may."""

    tls_cert: str | None = Field(None, min_length=1)
    """File with the certificate chain (PEM); unset: no TLS."""

    tls_key: str | None = Field(None, min_length=1)
    """File with the private key; unset: in `tls_cert`."""

    demo: bool = False
    """Whether a small game in a web page, trained by this server, is served on the same port."""

    gather_window_s: float = Field(0.0, ge=0, le=1)
    """How long in s an action may wait for further sessions, to be computed with theirs; none waits when all do, and
    what arrives at the same moment goes together anyway. More makes larger batches and later answers."""

    gather_max: int = Field(1024, ge=1)
    """Rows of a batch, at most; more wait for the next."""

    max_message: Size | None = None
    """Bytes of one message, "16mb" may be written; a client that sends more is cut off. Unset: what the observation
    space needs in its longest form, and 256 KiB; 16 MiB for raw states."""

    max_items: int = Field(1_000_000, ge=1)
    """Entries of all lists and dictionaries of one message."""

    max_depth: int = Field(32, ge=1, le=200)
    """How deep lists and dictionaries may be nested."""

    reward_weights: list[float] | None = Field(None, min_length=1)
    """For rewards that are lists: the weight of each number in the sum that is learned from; unset: 1 each."""

    on_full: Literal["wait", "drop"] = "drop"
    """What a server does while the replay takes no more: wait, which holds its clients up, or drop the chunk and act
    on, so that no robot stands still. Both are counted."""

    @model_validator(mode="after")
    def _check_tls(self) -> RlxConfig:
        if self.tls_key is not None and self.tls_cert is None:
            raise ValueError("tls_key is set, but tls_cert is not")
        if self.max_message is not None and self.max_message > 999_999_999:
            raise ValueError("max_message must be <= 999999999: a length has nine digits")
        return self


class TrainingConfig(Section):
    """What `surreal.rlx.TrainingBase` reads, so that one file serves a run and the environments that connect to it.
    Further settings in it are your environment's own. A run does not look at it: its environment is the section `env`.
    """

    model_config = ConfigDict(extra="allow")

    max_episodes: int | None = Field(None, ge=0)
    """Episodes that are played; unset: 1."""

    infinite_run: bool = False
    """Whether playing goes on after them."""


class TrainingServerConfig(Section):
    """Where `surreal.rlx.TrainingBase` finds the server; a run itself listens where the section `rlx` says."""

    bind: str | None = Field(None, min_length=1)
    """`host:port`, or `rlx://`, `rlxs://`, `ws://` or `wss://`; unset: `rlx.host` and `rlx.port`."""
