"""An HTTP/1.1 response taken apart as its bytes come, and the server-sent events in it (RFC 9112, WHATWG). Pure.

Written for a client that stamps each piece: bytes go in as they arrive, and whatever is complete comes out at once.
"""

from __future__ import annotations

import re

MAX_HEAD = 1 << 16
MAX_BODY = 1 << 20
"""Bytes of an answer that is no stream; what is longer is cut."""
MAX_EVENT = 1 << 24
"""Bytes of one event."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")


class Malformed(Exception):
    """The bytes are not what the protocol says; the text says what they are."""


class Response:
    """One response; ``feed`` it bytes."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        """Of an answer that is no stream of events, as far as it came."""
        self.complete = False
        self.streams = False
        self._raw = bytearray()
        self._text = bytearray()
        self._left: int | None = None
        self._chunked = False

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection serves another request after this one."""
        closes = b"close" in self.headers.get(b"connection", b"").lower()
        return self.complete and not closes and (self._chunked or b"content-length" in self.headers)

    def feed(self, data: bytes) -> list[bytes]:
        """Take what arrived; return the data of each event that is complete now. Raises ``Malformed``."""
        self._raw += data
        if not self.status and not self._read_head():
            return []
        before = len(self._text)
        if self._chunked:
            self._read_chunks()
        else:
            self._read_plain()
        if self.streams:
            return self._events(before)
        self.body = bytes(self._text[:MAX_BODY])
        return []

    def end(self) -> None:
        """Take the end of the connection: it completes an answer whose length nobody told."""
        if self.status and not self._chunked and self._left is None:
            self.complete = True

    def _read_head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            if len(self._raw) > MAX_HEAD or not b"HTTP/1.".startswith(bytes(self._raw[:7])):
                raise Malformed(f"no HTTP response: {_shown(self._raw)}")
            return False
        lines = bytes(self._raw[:end]).split(b"\r\n")
        del self._raw[: end + 4]
        found = _STATUS.fullmatch(lines[0])
        if found is None:
            raise Malformed(f"no status line: {_shown(lines[0])}")
        status = int(found[1])
        if status < 200:  # 100 Continue stands before the answer
            return self._read_head()
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            self.headers[name.strip().lower()] = value.strip()
        self.status = status
        self.streams = status == 200 and self.headers.get(b"content-type", b"").startswith(b"text/event-stream")
        self._chunked = self.headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        length = self.headers.get(b"content-length", b"")
        if not self._chunked and length:
            if not length.isdigit():
                raise Malformed(f"content-length: {_shown(length)}")
            self._left = int(length)
        return True

    def _read_plain(self) -> None:
        taken = len(self._raw) if self._left is None else min(self._left, len(self._raw))
        self._text += self._raw[:taken]
        del self._raw[:taken]
        if self._left is not None:
            self._left -= taken
            self.complete = self._left == 0

    def _read_chunks(self) -> None:
        raw, place = self._raw, 0
        while not self.complete:
            line = raw.find(b"\r\n", place)
            if line < 0:
                if len(raw) - place > MAX_HEAD:
                    raise Malformed(f"no size of a chunk: {_shown(raw[place:])}")
                break
            size = _SIZE.fullmatch(raw, place, line)
            if size is None:
                raise Malformed(f"no size of a chunk: {_shown(raw[place:line])}")
            count = int(size[1], 16)
            if count > MAX_EVENT:
                raise Malformed(f"a chunk of {count} bytes, more than {MAX_EVENT}")
            end = line + 2 + count
            if len(raw) < end + 2:
                break
            if raw[end : end + 2] != b"\r\n":  # trailers are not read: nobody sends them
                raise Malformed(f"a chunk does not end after {count} bytes: {_shown(raw[end:])}")
            self._text += raw[line + 2 : end]
            self.complete = count == 0
            place = end + 2
        del raw[:place]

    def _events(self, before: int) -> list[bytes]:
        """Cut complete events off; ``before`` is how much of the text was looked at already."""
        text = self._text
        if text.find(b"\n", before) < 0:
            if len(text) > MAX_EVENT:
                raise Malformed(f"an event of more than {MAX_EVENT} bytes")
            return []
        found = []
        if b"\r" in text:
            kept = text.endswith(b"\r")
            text[:] = text.replace(b"\r\n", b"\n") if kept else text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        while (end := text.find(b"\n\n")) >= 0:
            lines = bytes(text[:end]).split(b"\n")
            del text[: end + 2]
            data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
            if data:
                found.append(b"\n".join(data))
        return found


def _shown(data: bytes | bytearray) -> str:
    return repr(bytes(data[:60]))[1:]
