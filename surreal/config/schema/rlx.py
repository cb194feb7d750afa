"""RLX servers, the clients that a run starts itself, and two sections that only clients read."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from surreal.config.schema.fields import Section, Size


class RlxConfig(Section):
    """RLX servers and how they treat their clients."""

    servers: int = Field(0, ge=0, le=256)
    """Server processes that `surreal run` starts, all on one port. Raising it uses more cores. More can join from other
    machines at any time."""

    clients: int = Field(0, ge=0, le=1024)
    """`rlx-client` processes that `surreal run` starts to play `env.id`; 0 if all clients come from elsewhere."""

    client_envs: int = Field(1, ge=1, le=1024)
    """Environments per client process, each with its own connection."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on. 0.0.0.0 or :: accepts other machines; use a token and TLS then."""

    port: int = Field(7001, ge=0, le=65535)
    """Port for TCP, WebSocket and HTTP; 0 picks a free one."""

    max_sessions: int | None = Field(1024, ge=1)
    """Most sessions open at once on one server. Unset: as many as memory allows."""

    max_connection_sessions: int = Field(64, ge=1)
    """Most sessions open at once on one WebSocket. Raising it lets a single client use more of the server."""

    memory_reserve: Size = 64 * 2**20
    """Memory to keep free: a session that would need it is refused."""

    timeout_s: float | None = Field(None, gt=0)
    """Age in s after which a connection is closed at the end of its episode, so that a load balancer can spread clients
    again. Unset: never."""

    idle_timeout_s: float | None = Field(600.0, gt=0)
    """Seconds without a request after which a connection is closed. Unset: never."""

    token_file: str | None = Field(None, min_length=1)
    """File with the token that clients must present. Unset: `$SURREAL_RLX_TOKEN`; without that, no token is
    required."""

    tokens: str | None = Field(None, min_length=1)
    """File with a token for each client, in lines `NAME: TOKEN`. Servers read it again when it changes, and end the
    sessions of a token that is gone. The single token stays valid next to these. Unset: clients have no names."""

    policies: dict[str, str] = {}
    """Saved policies that clients may name in `init`: a name, and a policy's file, a run's folder or name, or a
    pretrained policy, of the same spaces. They act greedily, and nothing is learned from their sessions."""

    origins: list[str] = []
    """Further origins whose web pages may connect, such as `https://example.org`; `*` allows any. Pages from this
    machine and from the server itself are always allowed."""

    tls_cert: str | None = Field(None, min_length=1)
    """File with the certificate chain (PEM). Unset: no TLS."""

    tls_key: str | None = Field(None, min_length=1)
    """File with the private key. Unset: the key is in `tls_cert`."""

    tls_ca: str | None = Field(None, min_length=1)
    """File with the authorities (PEM) that sign clients' certificates, which every client must show then. Unset:
    clients need no certificate."""

    demo: bool = False
    """Whether to serve the example, a small browser game, on the same port."""

    pages: str | None = Field(None, min_length=1)
    """Folder of your web pages, relative to the file, to serve under `/app/` on the same port, with the JavaScript
    client one level above them. Every client that reaches the port can read all of it. Unset: none."""

    max_amend_s: float = Field(0.0, ge=0, le=86_400)
    """Longest time in s for which a client may hold back a step until its reward is known (`amend_within_s`). Raising
    it keeps more steps in the server's memory, at most 64 MiB for each session, and makes their experience older. 0:
    rewards are final."""

    gather_window_s: float = Field(0.0, ge=0, le=1)
    """How long in s a session may wait for others to join its batch. Requests that arrive together share a batch
    anyway, and no session waits once all are waiting. Raising it makes batches larger and replies later."""

    max_wait_ms: float | None = Field(None, gt=0, le=1000)
    """Longest time in ms from a session's request to its action that waiting for others may lead to; it replaces
    `gather_window_s`, and takes the time of acting into account. Raising it makes batches larger, which needs less of a
    processor, and replies later. Sessions do not wait where others rarely come in time. Unset: `gather_window_s`."""

    gather_max: int = Field(1024, ge=1)
    """Most rows in one batch; the rest wait for the next."""

    max_message: Size | None = None
    """Largest message; a client that sends a larger one is disconnected. Unset: what the observation space needs in its
    longest form, plus 256 KiB; 16 MiB for raw states."""

    max_items: int = Field(1_000_000, ge=1)
    """Most entries in one message, over all its lists and dictionaries."""

    max_depth: int = Field(32, ge=1, le=200)
    """Deepest nesting of lists and dictionaries in a message."""

    largest_state: float = Field(1e18, gt=0, le=1e18)
    """Largest magnitude of a float in a state; a state with a larger one is refused, and its episode is cut. Lowering
    it finds broken sensors earlier."""

    largest_reward: float = Field(1e9, gt=0, le=1e18)
    """Largest magnitude of a reward; a larger one is refused in the same way. Raising it allows returns whose squares
    may exceed float32."""

    outside_bounds: Literal["take", "refuse"] = "take"
    """What a server does with a state outside of the bounds of its `box`, which many environments leave now and then:
    `take` it, with a warning for the first and a count of all, or `refuse` it and cut the episode."""

    reward_weights: list[float] | None = Field(None, min_length=1)
    """Weights for rewards sent as lists; the reward is the weighted sum. Unset: plain sum."""

    on_full: Literal["wait", "drop"] = "drop"
    """What a server does while the replay accepts no experience: `wait`, which delays clients, or `drop` the chunk and
    keep acting, so that no robot stands still. Both are counted."""

    @model_validator(mode="after")
    def _check_tls(self) -> RlxConfig:
        if self.tls_key is not None and self.tls_cert is None:
            raise ValueError("tls_key is set, but tls_cert is not")
        if self.tls_ca is not None and self.tls_cert is None:
            raise ValueError("tls_ca is set, but tls_cert is not")
        if self.max_message is not None and self.max_message > 999_999_999:
            raise ValueError("max_message must be <= 999999999: a length has nine digits")
        return self


class TrainingConfig(Section):
    """Your own program that plays over RLX, and the settings that `surreal.rlx.TrainingBase` in it reads, so that a run
    and the environments that connect to it share one file. You may add your own settings. The run itself reads only
    `env`.
    """

    model_config = ConfigDict(extra="allow")

    max_episodes: int | None = Field(None, ge=0)
    """Episodes to play. Unset: 1."""

    infinite_run: bool = False
    """Whether to continue after these."""

    run: str | None = Field(None, min_length=1)
    """Shell command of the program that `surreal run` starts, such as `python environment/training.py`; it is told
    where the server is with `--rlx-server`. The run ends when all of them have ended. Unset: none is started."""

    folder: str | None = Field(None, min_length=1)
    """Folder that the program is started in, relative to the file. Unset: the file's own."""

    n_environments: int = Field(1, ge=0, le=1024)
    """Number of programs that `surreal run` starts (`-n`). Raising it gathers experience faster if there are enough
    cores."""

    exploit: bool = False
    """Whether the first of these programs acts greedily and is not used for learning (`--exploit`)."""

    show_ui: bool = False
    """Whether the first of these programs shows its environment (`--show-ui`)."""

    @property
    def count(self) -> int:
        """Programs that `surreal run` starts."""
        return self.n_environments if self.run is not None else 0


class TrainingServerConfig(Section):
    """The address at which `surreal.rlx.TrainingBase` finds the server. The server listens at the address in `rlx`."""

    bind: str | None = Field(None, min_length=1)
    """`host:port`, or a URL with `rlx://`, `rlxs://`, `ws://` or `wss://`. Unset: `rlx.host` and `rlx.port`."""
