"""One life of the engine process, seen from its parent: spawn, talk, notice its end."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import zmq

from octavo import logs
from octavo.engine import messages as m
from octavo.engine.forward import forward_lines
from octavo.engine.heart import Heart, anonymous_file
from octavo.engine.options import EngineOptions
from octavo.engine.socket_reader import SocketReader

STOP_TIMEOUT_S = 5.0
Handler = Callable[[m.Event], None]
_PREFIX = "octavo-engine-"
_ORPHAN_AGE_S = 60.0


class Child:
    """A spawned engine process and the socket to it. Made by `spawn`; `stop` must follow.

    The socket lives in a private folder, which is removed as soon as the child has connected. What
    a process that was killed before that has left is removed by the next one. The loop watches the
    socket's descriptor itself (socket_reader.py).
    heart: what the child shows of itself.
    """

    def __init__(self) -> None:
        _remove_orphans()
        self._folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
        self._heart_fd = anonymous_file()
        self.heart = Heart(self._heart_fd)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._address = f"ipc://{self._folder}/engine"
        self._socket.bind(self._address)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(m.Event)
        self._is_connected = False
        self._unsent: deque[bytes] = deque()  # until it is
        self._process: asyncio.subprocess.Process | None = None
        self._forwarding: asyncio.Task[None] | None = None
        self._reader: SocketReader | None = None

    async def spawn(self, options: EngineOptions, factory: str) -> None:
        """Start the process; it inherits the module search path and, unless logs are JSON and its
        own lines have to become records, standard error."""
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "octavo.engine",
            self._address,
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE if logs.wants_json() else None,
            env={**os.environ, **logs.child_environment(), "PYTHONPATH": path},
            pass_fds=(self._heart_fd,),
        )
        if self._process.stderr is not None:
            self._forwarding = asyncio.create_task(forward_lines(self._process.stderr))
        start = m.Start(factory, asdict(options), self._heart_fd)
        stdin = self._process.stdin
        if stdin is not None:
            stdin.write(msgspec.json.encode(start) + b"\n")

    @property
    def pid(self) -> int:
        """Process id; 0 before spawn."""
        return self._process.pid if self._process else 0

    def send(self, command: m.Command) -> None:
        """Queue a command; never blocks. Lost if the process is dead."""
        self._unsent.append(self._encoder.encode(command))
        self._flush()
        if self._reader is not None:  # sending may swallow the descriptor's word of new events
            self._reader.look_again()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._socket.send(self._unsent[0], zmq.NOBLOCK)
                self._unsent.popleft()
        except zmq.Again:  # nobody is connected
            return

    async def run(self, handle: Handler) -> int:
        """Pass every event to `handle` until the process ends; return its exit status."""
        if self._process is None:
            raise RuntimeError("engine process: run before spawn")

        def take(event: bytes) -> None:
            if not self._is_connected:
                self._is_connected = True
                self._remove_folder()
                self._flush()
            handle(self._decoder.decode(event))

        reader = self._reader = SocketReader(self._socket, take)
        ended = asyncio.ensure_future(self._process.wait())
        try:
            waits: set[asyncio.Future[Any]] = {reader.failed, ended}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if reader.failed.done():
                reader.failed.result()  # a handler's error is a bug: let it show
            return await ended
        finally:
            self._reader = None
            reader.close()
            ended.cancel()

    def drain(self, handle: Handler) -> None:
        """Pass on what a dead process had still sent."""
        while self._socket.poll(0):
            handle(self._decoder.decode(self._socket.recv(zmq.NOBLOCK)))

    async def stop(self) -> None:
        """Ask the process to end, kill it after STOP_TIMEOUT_S, and free everything."""
        process = self._process
        if process is not None and process.returncode is None:
            self.send(m.Shutdown())
            try:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        if process is not None and process.stdin is not None:
            process.stdin.close()
        if self._forwarding is not None:
            await asyncio.wait({self._forwarding}, timeout=1.0)
            self._forwarding.cancel()
        self._socket.close(linger=0)
        self._context.term()
        self._remove_folder()
        self.heart.close()
        os.close(self._heart_fd)

    def kill(self) -> None:
        """End the process now."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _remove_folder(self) -> None:
        if Path(self._folder).exists():
            shutil.rmtree(self._folder, ignore_errors=True)


def _remove_orphans() -> None:
    """Old folders of this user's processes that are gone (here; a folder may be shared with
    another machine or container, whose new ones are left alone)."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            facts = folder.lstat()
            old = time.time() - facts.st_mtime > _ORPHAN_AGE_S
            if old and facts.st_uid == os.getuid() and not _exists(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):  # somebody else removes it too, or it is no folder of ours
            continue


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
