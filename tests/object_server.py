"""A server of S3 for tests: moto, answering one request at a time, with requests counted.

moto keeps objects in this process, and looks at the conditions of a request before it acts on it;
so requests take turns, as on a server whose conditional puts are atomic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from orograph.tiles import object_storage

if TYPE_CHECKING:
    from werkzeug.serving import WSGIRequestHandler

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
}


class S3Server:
    """A server on a free port of this computer, which runs in a context."""

    def __init__(self) -> None:
        # here, since tests that need no server run where there is no moto
        from moto.server import create_backend_app
        from werkzeug.serving import make_server

        # of S3 alone: to find out which service is meant takes moto as long as to answer
        self._application = create_backend_app("s3")
        self._turn = Lock()
        self._buckets = count()
        self.requests: list[tuple[str, str]] = []
        """Method and path, with the query, of each request so far."""
        self.delay = 0.0
        """Seconds that each request takes at least."""
        self.without_conditions = False
        """Whether to ignore the conditions of requests, as some servers do."""
        self.is_away = False
        """Whether to answer that the service is unavailable, as one that is away for a while."""
        self.refused = 0
        """Number of requests that were answered so."""
        self.access_key_id: str | None = None
        """The only one whose requests are allowed; by default all are."""
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_silent_handler()
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url}

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        query = environ.get("QUERY_STRING")
        path = environ["PATH_INFO"] + (f"?{query}" if query else "")
        if self.delay:
            time.sleep(self.delay)
        if self.without_conditions:
            for name in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"):
                environ.pop(name, None)
        if self.is_away:
            self.refused += 1
            start("503 Service Unavailable", [("Content-Length", "0")])
            return []
        if self.access_key_id not in (None, _signer(environ)):
            start("403 Forbidden", [("Content-Type", "text/xml")])
            return [_DENIED]
        with self._turn:
            self.requests.append((environ["REQUEST_METHOD"], path))
            found: Iterable[bytes] = self._application(environ, start)
            return found

    def make_bucket(self) -> str:
        """Make an empty bucket; return its address."""
        name = f"bucket-{next(self._buckets)}"
        urlopen(Request(f"{self.url}/{name}", method="PUT")).close()
        return f"s3://{name}"

    def __enter__(self) -> S3Server:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


def _signer(environ: dict[str, Any]) -> str:
    """Return the id of the key by which a request is signed."""
    stated: str = environ.get("HTTP_AUTHORIZATION", "")
    return stated.partition("Credential=")[2].partition("/")[0]


def _silent_handler() -> type[WSGIRequestHandler]:
    from werkzeug.serving import WSGIRequestHandler

    class Silent(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: Any) -> None:
            """Print nothing."""

    return Silent


@contextmanager
def forget_connections() -> Iterator[None]:
    """Begin and end without connections, and with an empty ``memory://``."""

    def forget() -> None:
        object_storage._connect.cache_clear()
        object_storage._versions.clear()
        object_storage._heeding.clear()
        object_storage._memory.clear()

    forget()
    try:
        yield
    finally:
        forget()
