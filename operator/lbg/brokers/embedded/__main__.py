"""The broker process itself: `python -m lbg.brokers.embedded --store FILE --socket PATH`.

Ends with 0 after SIGTERM or SIGINT, with 1 and one line on standard error when it cannot serve or its store fails, with
2 for a wrong command line. What it says is for people, except on `--ready-fd`.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from lbg.brokers import base
from lbg.brokers.embedded import connection
from lbg.brokers.embedded.server import Server
from lbg.brokers.embedded.store import Store

_PR_SET_PDEATHSIG: Final = 1
_LOOPBACK: Final = "127.0.0.1"


def main() -> int:
    """Serve until a signal; return the exit code.

    An error of the broker is one line here, whoever's fault it is: a traceback would help nobody who starts a broker.
    """
    options = _parser().parse_args()
    if options.parent and not _die_with(options.parent):
        return 0  # nobody is left to serve
    try:
        asyncio.run(_serve(options))
    except base.BrokerError as error:
        _say(options.ready_fd, {"error": type(error).__name__, "message": error.message})
        sys.stderr.write(f"lbg broker: {error.message}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lbg.brokers.embedded", description="The embedded broker.")
    parser.add_argument("--store", type=Path, required=True, help="SQLite file; created when it is not there")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket", type=_socket_url, metavar="PATH", help="Unix socket to serve")
    where.add_argument("--listen", metavar="URL", help="the same as a URL, or embedded+tcp://127.0.0.1:PORT")
    parser.add_argument(
        "--handover", type=base.HandoverAbility, choices=list(base.HandoverAbility), default="cooperative"
    )
    parser.add_argument("--heartbeat", type=_seconds, default=base.DEFAULT_HEARTBEAT, metavar="SECONDS")
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    return parser


def _socket_url(path: str) -> str:
    return f"{connection.UNIX_SCHEME}://{quote(os.path.abspath(path))}"


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError("must lie between 0.05 and 3600 seconds")
    return value


def _die_with(parent: int) -> bool:
    """Ask the kernel for SIGTERM when the parent ends; False when it has ended already.

    The request is the child's own (prctl(2)), made before anything else: in the parent, between fork and exec, it would
    run Python code in a process that may have held locks of other threads.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have ended before the call, and would then never be noticed.
    return os.getppid() == parent


async def _serve(options: argparse.Namespace) -> None:
    """Serve until a signal or a failure, and leave the store and the socket tidy.

    Order matters twice. The store is opened, and locked, before the socket is taken, so that a second broker on one
    store never answers a client. And the server has stopped before its store is closed.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    endpoint = connection.parse_url(options.listen or options.socket)
    with closing(Store(options.store)) as store:
        server = Server(store, options.handover, heartbeat=options.heartbeat)
        _stop_on_bugs(loop, server)
        inode = None
        try:
            url = await _listen(server, endpoint)
            inode = _inode(endpoint.path) if endpoint.path else None
            _say(options.ready_fd, {"url": url})
            # From here on the socket accepts: whoever reads one of these lines can connect.
            sys.stdout.write(f"lbg broker: serving {url} from {options.store} ({options.handover.value} handover)\n")
            sys.stdout.flush()
            server.failed.add_done_callback(lambda _: stopped.set())
            await stopped.wait()
        finally:
            await server.stop()
            # Not somebody else's: the path may have been taken over while we were serving.
            if endpoint.path is not None and inode is not None and _inode(endpoint.path) == inode:
                os.unlink(endpoint.path)
        if server.failed.done():
            raise server.failed.result()


def _stop_on_bugs(loop: asyncio.AbstractEventLoop, server: Server) -> None:
    """Have an unexpected error end the process: a broker that lost half an operation must not go on.

    asyncio would log it and leave the commit loop waiting for ever, with every client connected and nothing answered.
    """

    def on_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, OSError) and not server.failed.done():
            server.failed.set_result(base.BrokerError(f"stopped by an unexpected error, please report it: {error!r}"))

    loop.set_exception_handler(on_error)


async def _listen(server: Server, endpoint: connection.Endpoint) -> str:
    """Take the address and return the URL that leads to it.

    Raises:
        Refused: somebody else has it, or it is none that this broker serves.
    """
    if endpoint.path is None:
        if endpoint.host not in (_LOOPBACK, "localhost"):
            raise base.Refused(f"{endpoint.url}: the embedded broker knows no passwords, so it serves {_LOOPBACK} only")
        try:
            port = await server.listen_tcp(_LOOPBACK, endpoint.port)
        except OSError as error:
            raise base.Refused(
                f"{endpoint.url}: cannot listen ({os.strerror(error.errno or 0)}): choose another port, or 0 for any"
            ) from None
        return f"{connection.TCP_SCHEME}://{_LOOPBACK}:{port}"
    with _locked_folder(endpoint.path):
        _remove_stale(endpoint.path)
        mask = os.umask(0o177)  # only its owner may connect
        try:
            await server.listen_unix(endpoint.path)
        except OSError as error:
            raise base.Refused(f"socket {endpoint.path}: cannot listen ({os.strerror(error.errno or 0)})") from None
        finally:
            os.umask(mask)
    return endpoint.url


@contextmanager
def _locked_folder(path: str) -> Iterator[None]:
    """Hold a lock on the folder while a socket is taken.

    Without it two brokers could both find the old socket stale, and the slower one would remove the faster one's new
    socket. The lock is the kernel's and needs no file of its own, which could be left behind.
    """
    folder = os.path.dirname(path) or "."
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise base.Refused(f"socket {path}: its folder cannot be used ({why}): create it, or choose another") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_stale(path: str) -> None:
    """Remove the socket of a broker that died; refuse anything else that stands in the way.

    Only a connection tells: the file of a Unix socket stays when its process is gone. asyncio would remove any socket
    at the path unseen.
    """
    if not os.path.lexists(path):
        return
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        # A stopped broker never answers, but the kernel answers for it; do not wait for more than that.
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            if not os.path.islink(path) and Path(path).is_socket():
                os.unlink(path)
                return
            raise base.Refused(f"socket {path}: a file that is no socket is in the way: choose another path") from None
        except BlockingIOError:
            pass
        except OSError as error:
            raise base.Refused(f"socket {path}: cannot be used ({os.strerror(error.errno or 0)})") from None
    raise base.Refused(f"socket {path}: another broker serves there: stop it, or choose another path")


def _inode(path: str) -> int | None:
    with suppress(OSError):
        return os.stat(path).st_ino
    return None


def _say(descriptor: int | None, words: dict[str, str]) -> None:
    if descriptor is not None:
        # A parent that is gone does not read; its end takes us down by another way.
        with suppress(OSError):
            os.write(descriptor, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
