# SPDX-License-Identifier: Apache-2.0
"""The part of the Hub's HTTP that its client uses to list and fetch a model, on loopback."""

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
INFO = re.compile(r"/api/models/(?P<id>[^/]+/[^/]+)(/revision/(?P<revision>[^/]+))?")
TREE = re.compile(r"/api/models/(?P<id>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)(/.*)?")
FILE = re.compile(r"/(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
TOKEN = "hf_let_me_in"


@dataclass
class FakeHub:
    """Repositories by id; those in `gated` want TOKEN. `fetched` are the files that were sent.

    While `holds_back` is set, a file stops halfway; `is_holding` tells that one has.
    """

    repositories: dict[str, dict[str, bytes]]
    gated: set[str] = field(default_factory=set)
    fetched: list[str] = field(default_factory=list)
    endpoint: str = ""
    holds_back: threading.Event = field(default_factory=threading.Event)
    is_holding: threading.Event = field(default_factory=threading.Event)


class Answer(BaseHTTPRequestHandler):
    hub: FakeHub

    def do_GET(self) -> None:
        self.answer(is_head=False)

    def do_HEAD(self) -> None:
        self.answer(is_head=True)

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, *, is_head: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        match = TREE.fullmatch(path) or INFO.fullmatch(path) or FILE.fullmatch(path)
        files = self.hub.repositories.get(match["id"]) if match else None
        if match is None or files is None:
            self.refuse(404, "RepoNotFound")
        elif (
            match["id"] in self.hub.gated and self.headers.get("authorization") != f"Bearer {TOKEN}"
        ):
            self.refuse(403, "GatedRepo")
        elif match["revision"] not in (None, "main", COMMIT):
            self.refuse(404, "RevisionNotFound")
        elif match.re is FILE:
            self.send_file(match["name"], files.get(match["name"]), is_head=is_head)
        elif match.re is TREE:
            self.send(json.dumps(tree_of(files)).encode(), {"content-type": "application/json"})
        else:
            self.send(
                json.dumps(info_of(match["id"], files)).encode(),
                {"content-type": "application/json"},
            )

    def send_file(self, name: str, content: bytes | None, *, is_head: bool) -> None:
        if content is None:
            self.refuse(404, "EntryNotFound")
            return
        headers = {"etag": f'"{sha1(content)}"', "x-repo-commit": COMMIT}
        if not is_head:
            self.hub.fetched.append(name)
        self.send(content, headers, is_head=is_head)

    def refuse(self, status: int, code: str) -> None:
        self.send(b"", {"x-error-code": code}, status=status)

    def send(
        self,
        body: bytes,
        headers: dict[str, str],
        *,
        status: int = 200,
        is_head: bool = False,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.write(body)

    def write(self, body: bytes) -> None:
        half = len(body) // 2
        self.wfile.write(body[:half])
        if FILE.fullmatch(unquote(urlsplit(self.path).path)):
            while self.hub.holds_back.is_set():
                self.wfile.flush()
                self.hub.is_holding.set()
                time.sleep(0.02)
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[half:])


@contextmanager
def serve_hub(hub: FakeHub) -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Answer,), {"hub": hub}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def tree_of(files: dict[str, bytes]) -> list[dict[str, object]]:
    return [
        {"type": "file", "path": name, "size": len(content), "oid": sha1(content)}
        for name, content in files.items()
    ]


def info_of(repository: str, files: dict[str, bytes]) -> dict[str, object]:
    siblings = [
        {"rfilename": name, "size": len(content), "blobId": sha1(content)}
        for name, content in files.items()
    ]
    return {"id": repository, "modelId": repository, "sha": COMMIT, "siblings": siblings}
