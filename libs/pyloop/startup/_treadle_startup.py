"""treadle in every process of a program: what ``python -m treadle`` and ``TREADLE=1`` do.

The environment variable reaches every child, however it is started; the line in treadle.pth, which does
nothing without the variable, has each interpreter that finds treadle call arm(). (A sitecustomize on
PYTHONPATH would hide the user's own, is lost where -E or -I is given, and cannot serve a program whose
command line somebody else writes. From Python 3.18 on, site asks for a .start file instead; on those before,
it would cost every process the import of this module.)

This module stands outside the package and imports nothing that costs: a process that never imports asyncio
pays for no more.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType
    from typing import Any

VARIABLE = "TREADLE"


def arm() -> None:
    """Make treadle the loop of this process and of the children that it starts; twice is harmless."""
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        os.environ[VARIABLE] = "1"
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name, hook in _HOOKS.items():
        if name in sys.modules:
            hook(sys.modules[name])


class _Finder:
    """Has the modules that matter looked at right after they were executed, or before; finds none itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the finders behind this one give, with our look at the module in it."""
        if name not in _HOOKS and name not in _TAKES_UVLOOP_IF_INSTALLED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = (
                find(name, path, target) if find is not None and finder is not self else None
            )
            if spec is not None:
                _look_at(name, spec.loader)
                return spec
        return None


def _look_at(name: str, loader: Any) -> None:
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        # A loader may be that of more modules: a zip file has one for each of its folders.
        ours = module.__name__ == name
        if ours and name in _TAKES_UVLOOP_IF_INSTALLED:
            _hide_uvloop(module)
        execute(module)
        if ours and name in _HOOKS:
            _HOOKS[name](module)

    try:
        loader.exec_module = exec_module
    except AttributeError:  # a loader without a dict: the other loop, if one runs, is told of
        pass


# asyncio and treadle


def _asyncio_is_there(asyncio: ModuleType) -> None:
    if "treadle" in sys.modules:
        return  # it is importing asyncio, and has its own turn at its end
    try:
        import treadle  # noqa: F401
    except Exception as exc:
        _warn(f"treadle was asked for ({VARIABLE}={os.environ.get(VARIABLE)}) and cannot be imported: {exc}")


def _treadle_is_there(treadle: ModuleType) -> None:
    try:
        treadle.install()
    except Exception as exc:
        _warn(f"treadle was asked for ({VARIABLE}={os.environ.get(VARIABLE)}) and cannot be installed: {exc}")
    _watch(treadle.Loop)


def _watch(loop_class: type) -> None:
    """Tell once if a loop of another kind runs: whoever asked for treadle has to know."""
    import asyncio

    set_running_loop = asyncio._set_running_loop
    told = False

    def _set_running_loop(loop: Any) -> None:
        nonlocal told
        if not told and loop is not None and not isinstance(loop, loop_class):
            told = True
            name = f"{type(loop).__module__}.{type(loop).__qualname__}"
            _warn(f"treadle was asked for, but {name} runs here: {_advice(sys._getframe(1))}", stacklevel=3)
        set_running_loop(loop)

    asyncio._set_running_loop = asyncio.events._set_running_loop = _set_running_loop


def _warn(text: str, stacklevel: int = 2) -> None:
    import warnings

    warnings.warn(text, RuntimeWarning, stacklevel=stacklevel + 1)


# What to give to whoever chose the other loop, the nearest caller first.
_FLAGS = {
    "uvicorn": "give uvicorn --loop auto, or --loop treadle:new_event_loop",
    "granian": "give granian --loop auto",
    "hypercorn": "give hypercorn --worker-class asyncio",
    "sanic": "leave Sanic's USE_UVLOOP unset, or set it to False",
    "faststream": "give faststream --loop treadle:new_event_loop",
    "gunicorn": "give gunicorn --asgi-loop auto",
    "aiohttp": "give gunicorn --worker-class aiohttp.GunicornWebWorker, or run_app() loop=treadle.new_event_loop()",
    "anyio": 'give anyio.run() backend_options={"loop_factory": treadle.new_event_loop}',
    "uvloop": "call asyncio.run() where the program calls uvloop.run()",
}
_FLAG_OF_NONE = (
    "the program chose it; leave out its uvloop.install() or loop factory, or make it treadle.new_event_loop"
)


def _advice(frame: FrameType | None) -> str:
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _FLAGS:
            return _FLAGS[package]
        frame = frame.f_back
    return _FLAG_OF_NONE


# Those who choose uvloop by themselves. Each name is theirs and may be gone in another version: then nothing
# is done here, and the warning above tells.

#: Modules that take uvloop wherever it is installed, and ask for nothing else of it.
_TAKES_UVLOOP_IF_INSTALLED = frozenset(
    {"aiogram.dispatcher.dispatcher", "faststream._internal.cli.main", "taskiq.cli.worker.run"}
)


def _hide_uvloop(module: ModuleType) -> None:
    """Let this module's own ``import uvloop`` fail, so that it does as it does where uvloop is not
    installed."""
    import builtins

    def import_without_uvloop(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "uvloop":
            raise ImportError("treadle was asked for")
        return builtins.__import__(name, *args, **kwargs)

    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_without_uvloop}


def _uvicorn_auto(module: ModuleType) -> None:
    if hasattr(module, "auto_loop_factory"):
        vars(module)["auto_loop_factory"] = lambda use_subprocess=False: _new_event_loop


def _granian_loops(module: ModuleType) -> None:
    import asyncio

    def build_auto_loop() -> Any:
        loop = _new_event_loop()
        asyncio.set_event_loop(loop)
        return loop

    if hasattr(getattr(module, "loops", None), "register"):
        module.loops.register("auto")(build_auto_loop)


def _sanic_startup(module: ModuleType) -> None:
    mixin: Any = getattr(module, "StartupMixin", None)
    original = getattr(mixin, "setup_loop", None)
    if original is None:
        return

    def setup_loop(self: Any) -> None:
        if getattr(self.config, "USE_UVLOOP", None) is True:
            original(self)

    mixin.setup_loop = setup_loop


def _gunicorn_asgi(module: ModuleType) -> None:
    worker: Any = getattr(module, "ASGIWorker", None)
    original = getattr(worker, "_setup_event_loop", None)
    if original is None:
        return
    import asyncio

    def _setup_event_loop(self: Any) -> None:
        if getattr(self.cfg, "asgi_loop", "auto") != "auto":
            original(self)
            return
        self.loop = _new_event_loop()
        asyncio.set_event_loop(self.loop)

    worker._setup_event_loop = _setup_event_loop


def _new_event_loop() -> Any:
    import treadle

    return treadle.new_event_loop()


_HOOKS: dict[str, Callable[[ModuleType], None]] = {
    "asyncio": _asyncio_is_there,
    "treadle": _treadle_is_there,
    "uvicorn.loops.auto": _uvicorn_auto,
    "granian._loops": _granian_loops,
    "sanic.mixins.startup": _sanic_startup,
    "gunicorn.workers.gasgi": _gunicorn_asgi,
}
