"""Server-sent events (WHATWG HTML, section 9.2.6), as serving engines use them: bytes in, ``data`` out.

Characters may be split between reads anywhere, so bytes are kept until a line is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


class StreamError(ValueError):
    """The bytes are no event stream, or too many. The message completes a sentence."""


@dataclass(slots=True)
class Decoder:
    """``feed`` gives the data of the events that became whole. ``max_line`` and ``max_total``
    are in bytes: what a server sends is not trusted to end."""

    max_line: int = 4 * 2**20
    max_total: int = 64 * 2**20
    _total: int = 0
    _bytes: bytearray = field(default_factory=bytearray)
    _data: list[str] = field(default_factory=list)

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Raises ``StreamError`` for bytes that are not UTF-8 or beyond the limits, after the events
        that came before them."""
        self._total += len(chunk)
        end = chunk.rfind(b"\n") + 1  # only what is new is searched
        if end:
            lines = bytes(self._bytes + chunk[:end]).split(b"\n")[:-1]
            self._bytes = bytearray()
            for line in lines:
                if len(line) > self.max_line:
                    raise StreamError(f"a line of more than {self.max_line // 2**20} MiB")
                event = self._line(line.removesuffix(b"\r"))
                if event is not None:
                    yield event
        self._bytes += chunk[end:]
        if len(self._bytes) > self.max_line:
            raise StreamError(f"a line of more than {self.max_line // 2**20} MiB")
        if self._total > self.max_total:
            raise StreamError(f"more than {self.max_total // 2**20} MiB")

    def _line(self, line: bytes) -> str | None:
        if not line:
            data, self._data = self._data, []
            return "\n".join(data) if data else None
        if line.startswith(b":"):
            return None  # a comment: servers send them to keep the connection open
        try:
            name, _, value = line.decode("utf-8").partition(":")
        except UnicodeDecodeError as error:
            raise StreamError("bytes that are not UTF-8") from error
        if name in ("data", "error"):  # llama.cpp names its error events so
            self._data.append(value.removeprefix(" "))
        elif name not in ("event", "id", "retry"):
            raise StreamError("a line that is no event")
        return None
