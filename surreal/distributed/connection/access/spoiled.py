"""Keys of a run that hold what Surreal never writes: a clear error instead of Redis' own.

Whoever may write to a run can spoil it. A connection recognises what Redis says of a key of another type, or of a
script that cannot use what it finds; what is spoiled inside of values is found by whoever decodes them.
"""

from __future__ import annotations

import re
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from surreal.base.errors import SurrealError
from surreal.distributed.connection.retry import is_demoted

#: The last one: one of Surreal's scripts failed in Lua. What `redis.call` refused in a script is at "@user_script:".
_SIGNS = re.compile(r"WRONGTYPE|is not an integer|is not a valid float|would overflow|(?<!@)\buser_script:")


class SpoiledKeyError(SurrealError, ResponseError):
    """A key of the run holds what Surreal never writes."""


def clear_error(error: ResponseError) -> ResponseError:
    """The same error, or a clearer one where a key is spoiled."""
    text = str(error)
    is_plain = type(error) is ResponseError and not isinstance(error, NoScriptError)
    if not is_plain or not _SIGNS.search(text):
        return error
    return SpoiledKeyError(
        f"a key of the run in Redis holds what Surreal never writes ({text[:200]}): somebody else writes there; "
        "`surreal stop RUN --delete` removes the run"
    )


def number_of(value: bytes | int | None) -> int:
    """A number as Redis holds it; 0 if there is none.

    Raises:
        SpoiledKeyError: it is something else.
    """
    try:
        return int(value or 0)
    except ValueError:
        raise SpoiledKeyError(
            f"a key of the run in Redis holds {str(value)[:40]} where a number belongs: somebody else writes there; "
            "`surreal stop RUN --delete` removes the run"
        ) from None


def text_of(value: bytes | None) -> str:
    """A text as Redis holds it; "" if there is none."""
    return (value or b"").decode(errors="replace")


def with_clear_errors(connection_class: Any) -> Any:
    """A class of connections whose replies raise clear errors, and which leave a server that was demoted."""

    class Connection(connection_class):  # type: ignore[misc]
        def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return super().read_response(*args, **options)
            except ResponseError as error:
                if is_demoted(error):
                    self.disconnect()
                clear = clear_error(error)
                if clear is error:
                    raise
                raise clear from error

    return Connection
