"""Malformed HTTP requests, by what is wrong with them."""

from __future__ import annotations

_HOST = b"host: test\r\n"
_POST = b"POST /api/v1/queue/enqueue HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
_CHUNKED = _POST + b"transfer-encoding: chunked\r\n\r\n"


def _get(headers: bytes) -> bytes:
    return b"GET /healthz HTTP/1.1\r\n" + headers + b"\r\n\r\n"


NOT_HTTP = {
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 512,
    "NULs": b"\x00" * 300,
    "an SSH banner": b"SSH-2.0-OpenSSH_9.9\r\n",
    "a word": b"hello\r\n\r\n",
    "a line feed too few": b"GET /healthz HTTP/1.1\rhost: test\r\r",
    "all bytes": bytes(range(256)) * 4,
    "an answer": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/0.9 with its version": b"GET /healthz HTTP/0.9\r\n\r\n",
    "HTTP/2 in words": b"GET /healthz HTTP/2.0\r\n" + _HOST + b"\r\n",
    "HTTP/3.1": b"GET /healthz HTTP/3.1\r\n" + _HOST + b"\r\n",
}

REQUEST_LINES = {
    "no path": b"GET\r\n" + _HOST + b"\r\n",
    "nothing after the method": b"GET \r\n" + _HOST + b"\r\n",
    "no version": b"GET /healthz HTTP/\r\n" + _HOST + b"\r\n",
    "another protocol": b"GET /healthz HTTPS/1.1\r\n" + _HOST + b"\r\n",
    "a method in lower case": b"get /healthz HTTP/1.1\r\n" + _HOST + b"\r\n",
    "an unknown method": b"FETCH /healthz HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a method with a NUL": b"GE\x00T /healthz HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a word too many": b"GET /healthz HTTP/1.1 please\r\n" + _HOST + b"\r\n",
    "a NUL in the path": b"GET /healthz\x00 HTTP/1.1\r\n" + _HOST + b"\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a path without slash": b"GET healthz HTTP/1.1\r\n" + _HOST + b"\r\n",
    "an asterisk": b"OPTIONS * HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a query alone": b"GET ?x=1 HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a host alone": b"GET http://test HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a host that is none": b"GET http://[::1/healthz HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a tunnel": b"CONNECT test:443 HTTP/1.1\r\n" + _HOST + b"\r\n",
}

HEADERS = {
    "a space in a name": _get(b"x y: 1"),
    "a NUL in a name": _get(b"x\x00: 1"),
    "no name": _get(b": 1"),
    "no colon": _get(b"nonsense"),
    "a bracket in a name": _get(b"x(: 1"),
    "a space before the colon": _get(b"host : test"),
    "a folded first line": _get(b" folded: 1"),
    "a NUL in a value": _get(b"x: a\x00b"),
    "a bare CR in a value": _get(b"x: a\rb: c"),
}

LENGTHS = {
    "two lengths": _POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\n{} {} ",
    "the same length twice": _POST + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
    "a list of lengths": _POST + b"content-length: 2, 2\r\n\r\n{}",
    "a negative length": _POST + b"content-length: -1\r\n\r\n{}",
    "a length with a plus": _POST + b"content-length: +2\r\n\r\n{}",
    "a length in hex": _POST + b"content-length: 0x2\r\n\r\n{}",
    "no length in the header": _POST + b"content-length: \r\n\r\n{}",
    "a length beyond 64 bits": _POST + b"content-length: 99999999999999999999999\r\n\r\n{}",
    "a length of 64 bits": _POST + b"content-length: 18446744073709551615\r\n\r\n{}",
    "a length and chunks": _POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks and a length": _POST + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunked, but not last": _POST + b"transfer-encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "an unknown encoding": _POST + b"transfer-encoding: gzip\r\n\r\n{}",
    "almost chunked": _POST + b"transfer-encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
}

CHUNKS = {
    "a chunk size that is none": _CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
    "a negative chunk size": _CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "a chunk size in hex with its prefix": _CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": _CHUNKED + b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n",
    "no chunk size": _CHUNKED + b"\r\n{}\r\n0\r\n\r\n",
    "a chunk that goes on": _CHUNKED + b"2\r\n{}{}\r\n0\r\n\r\n",
}

LARGE = {
    "a long path": b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a long query": b"GET /healthz?" + b"x" * 100_000 + b" HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a long header": _get(b"x: " + b"y" * 100_000),
    "a long header name": _get(b"x" * 100_000 + b": y"),
    "a header without end": b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 5_000_000,
    "a request line without end": b"GET /" + b"x" * 5_000_000,
    "a method without end": b"G" * 5_000_000,
    "10,000 headers": _get(b"\r\n".join(b"x-%d: y" % number for number in range(10_000))),
    "10,000 times the same header": _get(b"\r\n".join([b"cookie: a=b"] * 10_000)),
    "empty lines without end": b"\r\n" * 1_000_000,
}

UPGRADES = {
    "a WebSocket": b"GET /api/v1/events HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "HTTP/2 in clear": b"GET /api/v1/queue HTTP/1.1\r\nhost: test\r\nconnection: upgrade, http2-settings\r\n"
    b"upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
}

MALFORMED = NOT_HTTP | REQUEST_LINES | HEADERS | LENGTHS | CHUNKS | LARGE | UPGRADES

ODD_PATHS = [
    "/%",
    "/%zz",
    "/%00",
    "/healthz%00",
    "/healthz/",
    "//healthz",
    "/./healthz",
    "/x/../healthz",
    "/healthz;x=1",
    "/%ff%fe",
    "/%c0%ae%c0%ae/",
    "/..%2f..%2fetc%2fpasswd",
    "/api/v1/queue/%2e%2e/%2e%2e",
    "/api/v1/queue/%",
    "/api/v1/queue/%00",
    "/api/v1/queue/%0d%0aset-cookie:%20a=b",
    "/api/v1/queue/a%2fb",
    "/api/v1/queue/'%20OR%201=1--",
    "/api/v1/queue/%F0%9F%92%A9",
    "/api/v1/queue/%ed%a0%80",
    "/api/v1/queue/" + "%25" * 2_000,
    "/api/v1/queue?limit=%00",
    "/api/v1/queue?limit=1e9",
    "/api/v1/queue?limit=" + "9" * 5_000,
    "/api/v1/queue?cursor=%00",
    "/api/v1/queue?type=%ff",
    "/api/v1/queue?status[]=x&status=x",
    "/api/admin/queue/failures?jobId=%00",
    "/api/admin/queue/failures?jobId=%ed%a0%80",
    "/api/admin/queue/failures/%00",
    "/api/v1/queues/%00/pause",
]
