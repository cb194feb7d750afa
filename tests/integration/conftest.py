"""What many of these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from surreal.distributed import RedisClient


@pytest.fixture
def client(redis_server: Any, run_id: str) -> Iterator[RedisClient]:
    with RedisClient(redis_server.address, run=run_id) as client:
        yield client
        client.delete_run()
