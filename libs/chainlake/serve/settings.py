"""How the gateway is set up: limits that keep one client from taking what belongs to all."""

from dataclasses import dataclass, field

from chainlake.logs.filter import Limits

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """Every limit has a default that suits a machine of two cores."""

    host: str = "127.0.0.1"
    port: int = 8545
    chain_id: int = 1337
    cors: tuple[str, ...] = ()
    """Origins whose pages may call; `*` for all."""
    allowed_hosts: tuple[str, ...] = ()
    """Names besides localhost and plain addresses that the Host header may have; `*` for all."""
    filters: Limits = field(default_factory=Limits)
    max_results: int = 10_000
    max_page: int = 10_000
    max_batch: int = 100
    max_body: int = MIB
    max_response: int = 25 * MIB
    max_outgoing: int = 256 * MIB
    """Bytes of answers that wait for slow readers, all connections together."""
    max_connections: int = 512
    max_filters: int = 1_000
    filter_seconds: float = 300.0
    """An installed filter that nobody asks about for this long is gone, as in geth."""
    threads: int = 4
    queue: int = 64
    """Requests that may wait for a thread; further ones are told that the server is busy."""
    request_seconds: float = 30.0
    body_seconds: float = 10.0
    idle_seconds: float = 30.0
    """A connection may take this long to bring a request, headers included."""
    write_seconds: float = 60.0
    access_log: bool = True
