"""The open connections of a server, and which of them make room for new ones."""

import collections
from typing import Protocol

_RESERVE = 64  # connections beyond the limits, for probes


class Closable(Protocol):
    """A connection."""

    @property
    def address(self) -> str:
        """The client's address."""

    def make_room(self, is_refused: bool) -> None:
        """Closes the connection, after an answer if it is refused."""


class Connections:
    """The open connections, within a limit for all and one for each address.

    A connection is idle while none of its requests is being answered. At a limit, an idle one makes
    room for a new one: of the address that holds the most, the one that has been idle for longest.
    If none is idle, new ones are kept in reserve for probes; 64 of them, the newest.

    Args:
        limit: the maximum number of open connections.
        limit_of_address: the maximum number of open connections of an address.
    """

    def __init__(self, limit: int, limit_of_address: int):
        self._limit, self._limit_of_address = limit, limit_of_address
        self._open: set[Closable] = set()
        self._number: collections.Counter[str] = collections.Counter()  # of open ones, by address
        self._idle: dict[str, dict[Closable, None]] = {}  # by address, longest idle first
        self._reserve: dict[Closable, None] = {}  # oldest first

    def admit(self, connection: Closable) -> bool:
        """Counts a connection as open, if there is room for it or can be made."""
        if connection in self._open:
            return True
        address = connection.address
        if self._number[address] >= self._limit_of_address:
            crowd = [address] if address in self._idle else []
        elif len(self._open) >= self._limit:
            crowd = list(self._idle)
        else:
            crowd = None
        if crowd is not None:
            if not crowd:
                return False
            largest = max(crowd, key=self._number.__getitem__)
            longest = next(iter(self._idle[largest]))
            self.forget(longest)
            longest.make_room(is_refused=False)
        self._reserve.pop(connection, None)
        self._open.add(connection)
        self._number[address] += 1
        return True

    def keep_in_reserve(self, connection: Closable) -> None:
        """Keeps a connection for which there is no room until there are many newer ones."""
        if len(self._reserve) >= _RESERVE:
            oldest = next(iter(self._reserve))
            self.forget(oldest)
            oldest.make_room(is_refused=True)
        self._reserve[connection] = None

    def note(self, connection: Closable, is_idle: bool) -> None:
        """Notes whether a connection is idle."""
        address = connection.address
        if connection not in self._open:
            return
        if is_idle:
            self._idle.setdefault(address, {}).setdefault(connection)
        elif connection in self._idle.get(address, {}):
            del self._idle[address][connection]
            if not self._idle[address]:
                del self._idle[address]

    def forget(self, connection: Closable) -> None:
        """Forgets a connection that is closed."""
        self._reserve.pop(connection, None)
        self.note(connection, is_idle=False)
        if connection in self._open:
            self._open.remove(connection)
            self._number[connection.address] -= 1
            if not self._number[connection.address]:
                del self._number[connection.address]
