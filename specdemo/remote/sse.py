"""Server-sent events (WHATWG HTML, section 9.2.6), as serving engines use them: bytes in, ``data`` out.

Characters may be split between reads anywhere, so bytes are kept until a line is whole."""

from __future__ import annotations

from dataclasses import dataclass, field


class StreamError(ValueError):
    """The bytes are no event stream, or too many. The message completes a sentence."""


@dataclass(slots=True)
class Decoder:
    """``feed`` returns the data of the events that became whole. ``max_line`` and ``max_total``
    are in bytes: what a server sends is not trusted to end."""

    max_line: int = 4 * 2**20
    max_total: int = 64 * 2**20
    _total: int = 0
    _bytes: bytearray = field(default_factory=bytearray)
    _data: list[str] = field(default_factory=list)

    def feed(self, chunk: bytes) -> list[str]:
        """Raises ``StreamError`` for bytes that are not UTF-8 or beyond the limits."""
        self._total += len(chunk)
        if self._total > self.max_total:
            raise StreamError(f"more than {self.max_total // 2**20} MiB")
        self._bytes += chunk
        *lines, rest = self._bytes.split(b"\n")
        if len(rest) > self.max_line or any(len(line) > self.max_line for line in lines):
            raise StreamError(f"a line of more than {self.max_line // 2**20} MiB")
        self._bytes = bytearray(rest)
        events = []
        for line in lines:
            event = self._line(bytes(line.removesuffix(b"\r")))
            if event is not None:
                events.append(event)
        return events

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
