"""Executing one notebook as a task does on Databricks: fresh kernel, parameters from outside, outputs kept.

The kernel runs in an event loop of a second thread. The main thread only waits, so that Ctrl-C and SIGTERM reach it at
once; it then lets the running cell stop between two steps before the kernel is ended.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from chainlake.errors import BadInput, CheckFailed
from chainlake.jobs.failure import NotebookFailed, NotebookTimedOut, Position, one_line
from chainlake.notebook import ENVIRONMENT_PREFIX, environment_name

GRACE_SECONDS = 20.0


class OwnKernelManager(AsyncKernelManager):
    """Starts kernels with this very Python, whatever kernels Jupyter knows on this machine."""

    @property
    def kernel_spec(self) -> KernelSpec:
        launch = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        quiet = "--IPKernelApp.log_level=ERROR"  # it warns on our terminal of the loopback port that it listens on
        return KernelSpec(argv=[*launch, quiet], display_name="Python 3", language="python")


def execute_notebook(
    notebook: Path, parameters: Mapping[str, str], copy: Path, *, home: Path, timeout_seconds: float = 0
) -> float:
    """Run every cell; returns the seconds it took. The notebook with its outputs is kept as `copy`, come what may."""
    execution = _Execution(_read(notebook), notebook, copy)
    started = time.monotonic()
    try:
        execution.run(_environment(parameters, home), timeout_seconds or None)
    except BaseException:
        with suppress(CheckFailed):  # what went wrong before matters more
            execution.save()
        raise
    execution.save()
    return time.monotonic() - started


def _read(notebook: Path) -> Any:
    try:
        return nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise BadInput(f"cannot read notebook {notebook}: {error.strerror}") from None
    except Exception as error:
        raise BadInput(f"{notebook} is not a notebook: {one_line(type(error).__name__, str(error))}") from None


def _environment(parameters: Mapping[str, str], home: Path) -> dict[str, str]:
    """This process's environment, but only the parameters of this task."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    given = {environment_name(name): value for name, value in parameters.items()}
    return {**inherited, **given, "LAKE_HOME": str(home.absolute())}


class _Execution:
    """One notebook under way."""

    def __init__(self, content: Any, notebook: Path, copy: Path) -> None:
        self._notebook = notebook
        self._copy = copy
        self._position = Position()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._client = NotebookClient(
            content,
            kernel_manager_class=OwnKernelManager,
            resources={"metadata": {"path": str(notebook.parent)}},
            on_cell_start=lambda cell, cell_index: self._position.move_to(cell),
        )

    def run(self, environment: dict[str, str], timeout: float | None) -> None:
        """Wait for the thread that drives the kernel; if this thread is interrupted, stop the kernel and pass it on."""
        finished: Future[None] = Future()
        threading.Thread(target=self._drive, args=(finished, environment, timeout), daemon=True).start()
        try:
            finished.result()
        except KeyboardInterrupt:
            with suppress(RuntimeError, TimeoutError):  # it has just ended by itself, or cannot be ended
                self._loop.call_soon_threadsafe(self._stop.set)
                finished.exception(timeout=2 * GRACE_SECONDS)
            raise

    def save(self) -> None:
        """Keep the notebook with the outputs that it has so far."""
        try:
            self._copy.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(self._client.nb, self._copy)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise CheckFailed(f"{self._notebook.name} ran, but its outputs cannot be kept: {error}") from None

    def _drive(self, finished: Future[None], environment: dict[str, str], timeout: float | None) -> None:
        try:
            self._loop.run_until_complete(self._execute(environment, timeout))
            finished.set_result(None)
        except BaseException as error:
            finished.set_exception(error)
        finally:
            self._loop.close()

    async def _execute(self, environment: dict[str, str], timeout: float | None) -> None:
        work = asyncio.ensure_future(self._client.async_execute(env=environment))
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({work, stop}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await self._end(work)
            if self._stop.is_set():
                raise self._failure("stopped")
            raise self._failure(f"took longer than its timeout of {timeout:g} s", NotebookTimedOut)
        stop.cancel()
        try:
            work.result()
        except CellExecutionError as error:
            raise self._failure(one_line(error.ename, error.evalue)) from None
        except (DeadKernelError, RuntimeError) as error:
            raise self._failure(f"the kernel died ({error}): look for a crash or too little memory") from None
        except OSError as error:
            raise self._failure(f"the kernel cannot be used ({error})") from None

    async def _end(self, work: "asyncio.Future[Any]") -> None:
        """Interrupt the running cell, give it time to stop by itself, then end the kernel."""
        kernel = self._client.km
        if isinstance(kernel, AsyncKernelManager) and kernel.has_kernel:
            await kernel.interrupt_kernel()
        await asyncio.wait({work}, timeout=GRACE_SECONDS)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    def _failure(self, reason: str, kind: type[NotebookFailed] = NotebookFailed) -> NotebookFailed:
        return kind(self._notebook, self._position.cell, self._position.source, reason, self._copy)
