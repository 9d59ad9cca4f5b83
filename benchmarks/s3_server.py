"""A server of S3 in memory that takes little of a processor, and any delay, for each request.

It answers what obstore asks of a bucket: GET with ranges and conditions, PUT, HEAD, DELETE, copies,
listings in one page, and the deletion of many keys. moto takes about 10 ms of a processor for each
request and answers one at a time, so a run is measured with it only as far as the server's share.
"""

from __future__ import annotations

import math
import re
import socket
import time
from collections.abc import Mapping, Sequence
from itertools import count
from operator import itemgetter
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
STAMP = "2026-01-01T00:00:00.000Z"


class Server:
    """A server on a free port of this computer; each connection has a thread.

    Attributes
    ----------
    delay
        Seconds by which each answer is held back.
    requests
        Time of arrival, time of the answer, method and path of each request so far.
    """

    def __init__(self) -> None:
        self.delay = 0.0
        self.requests: list[tuple[float, float, str, str]] = []
        self._objects: dict[str, tuple[str, bytes]] = {}
        self._versions = count(1)
        self._turn = Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb", 2**16) as stream:
            while line := stream.readline():
                method, target, _ = line.decode().split()
                headers = {}
                while (field := stream.readline().decode().rstrip()) != "":
                    name, _, value = field.partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", 0)))
                began = time.monotonic()
                status, more, content = self._answer(method, target, headers, body)
                if self.delay:
                    time.sleep(max(began + self.delay - time.monotonic(), 0))
                length = more.pop("Content-Length", str(len(content)))
                lines = [f"{name}: {value}" for name, value in more.items()]
                head = [f"HTTP/1.1 {status} -", f"Content-Length: {length}", *lines, "", ""]
                connection.sendall("\r\n".join(head).encode())
                if content and method != "HEAD":
                    connection.sendall(content)
                self.requests.append((began, time.monotonic(), method, target))

    def _answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes | memoryview]:
        split = urlsplit(target)
        path, query = unquote(split.path), parse_qs(split.query, keep_blank_values=True)
        if "list-type" in query:
            return 200, {}, self._listing(path.strip("/"), query)
        with self._turn:
            if "delete" in query:
                bucket, keys = path.strip("/"), re.findall("<Key>(.*?)</Key>", body.decode())
                for key in keys:
                    self._objects.pop(f"/{bucket}/{unescape(key)}", None)
                gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
                return 200, {}, f"<DeleteResult>{gone}</DeleteResult>".encode()
            if method == "DELETE":
                self._objects.pop(path, None)
                return 204, {}, b""
            found = self._objects.get(path)
            wanted = headers.get("if-match")
            if wanted is not None and (found is None or found[0] != wanted):
                return (404 if found is None else 412), {}, b""
            if method == "PUT":
                if "if-none-match" in headers and found is not None:
                    return 412, {}, b""
                source = headers.get("x-amz-copy-source")
                if source is not None:
                    body = self._objects[f"/{unquote(source).lstrip('/')}"][1]
                etag = f'"{next(self._versions)}"'
                self._objects[path] = etag, body
                copied = f"<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>".encode()
                return 200, {"ETag": etag}, b"" if source is None else copied
        if found is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"
        etag, content = found
        stated = {"ETag": etag, "Last-Modified": DATE}
        if method == "HEAD":
            return 200, {**stated, "Content-Length": str(len(content))}, b""
        first, last = _range(headers.get("range", ""), len(content))
        if (first, last) == (0, len(content)):
            return (206 if "range" in headers and content else 200), _of(stated, content), content
        part = memoryview(content)[first:last]
        where = {"Content-Range": f"bytes {first}-{last - 1}/{len(content)}"}
        return 206, {**stated, **where}, part

    def _listing(self, bucket: str, query: Mapping[str, list[str]]) -> bytes:
        (prefix,), (delimiter,) = query.get("prefix", [""]), query.get("delimiter", [""])
        root = f"/{bucket}/"
        found, folders = [], set()
        for path, (etag, content) in sorted(self._objects.copy().items()):
            key = path.removeprefix(root)
            if not path.startswith(root) or not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            found.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{STAMP}</LastModified>"
                f"<ETag>{escape(etag)}</ETag><Size>{len(content)}</Size></Contents>"
            )
        found += [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            for name in sorted(folders)
        ]
        body = "<IsTruncated>false</IsTruncated>" + "".join(found)
        return f"<ListBucketResult>{body}</ListBucketResult>".encode()


def _of(stated: dict[str, str], content: bytes) -> dict[str, str]:
    """Return the headers of a whole object."""
    if not content:
        return stated
    return {**stated, "Content-Range": f"bytes 0-{len(content) - 1}/{len(content)}"}


def _range(header: str, size: int) -> tuple[int, int]:
    """Return the first byte and the one after the last that a request asks for."""
    if not header:
        return 0, size
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:
        return max(size - int(last), 0), size
    return int(first), min(int(last or size) + 1, size)


def serial_rounds(requests: Sequence[tuple[float, float, str, str]]) -> int:
    """Return the most requests of which each began when the one before had been answered."""
    count, end = 0, -math.inf
    for begin, answered, *_ in sorted(requests, key=itemgetter(1)):
        if begin >= end:
            count, end = count + 1, answered
    return count


def main() -> None:
    """Print the address; then take a delay in seconds from each line, and print a line for it.

    It holds the number of requests since the line before, and how many of them were serial.
    """
    server = Server()
    print(server.url, flush=True)
    while True:
        try:
            server.delay = float(input())
        except EOFError:
            return
        made, server.requests = server.requests, []
        print(len(made), serial_rounds(made), flush=True)


if __name__ == "__main__":
    main()
