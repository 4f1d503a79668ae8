#!/usr/bin/env python3
"""Measure file operations over several libraries, interleaved: a fresh process per sample, with the C tool as
the limit.

Writes each arm's JSON (perf/schema.json) after every round into a folder under out/ and prints operations/s,
CPU and the share of the limit. Ctrl-C and SIGTERM end it with what there is; the data files it made are
removed.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextlib
import importlib
import importlib.util
import itertools
import json
import mmap
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import arms as arms_
import comparison
import compare_print
import options as options_
import report
import rounds

TARGETS = HERE.parent / "targets-files.json"
SMALL_FILES = 1000
SMALL_BYTES = 4096
ARMS = [
    "treadle",
    "treadle_shape",
    "caio",
    "caio_plain",
    "caio_deferred",
    "aiofile",
    "aiofiles",
    "executor",
    "limit",
]
#: What may follow an arm's name after a `+`, as options of FileContext and of the C tool.
WORDS = {
    **{
        word: {"engine": engine}
        for word, engine in (("uring", "linux_uring"), ("aio", "linux_aio"), ("threads", "threads"))
    },
    **{mode: {"mode": mode} for mode in ("adaptive", "deferred", "immediate")},
    "sqpoll": {"sqpoll": True},
    "noinline": {"inline": False},
    "pinned": {"pinned": True},
}
VARIANTS = [
    "treadle",
    *[
        f"treadle+{word}"
        for word in ("aio", "threads", "deferred", "immediate", "noinline", "sqpoll", "pinned")
    ],
    "limit",
    *[f"limit+{word}" for word in ("aio", "threads", "deferred", "immediate", "sqpoll", "pinned")],
]
#: What --table lays side by side: engine, when operations are submitted, and who submits, in C and in Python.
#: Reads that the page cache answers at once never reach an engine, so Python's are kept from it, but for the
#: default as a user gets it.
TABLE_ENGINES = [
    "uring+deferred",
    "uring+immediate",
    "uring+deferred+sqpoll",
    "uring+immediate+sqpoll",
    "aio+deferred",
    "aio+immediate",
    "threads+deferred",
    "threads+immediate",
]
TABLE = [
    *[f"limit+{engine}" for engine in TABLE_ENGINES],
    *[f"treadle+{engine}+noinline" for engine in TABLE_ENGINES],
    "treadle",
]
NEEDS = {
    "treadle": "treadle",
    "treadle_shape": "treadle",
    "caio": "caio",
    "caio_plain": "caio",
    "caio_deferred": "caio",
    "aiofile": "aiofile",
    "aiofiles": "aiofiles",
}
#: Arms with a thread per operation get a quarter of the operations.
SLOW = ("aiofile", "aiofiles", "executor")

# name: kind, block, depth, operations of a sample
CASES = {
    **{f"hot_4k_{d}": ("hot", 4096, d, 20000) for d in (1, 8, 64, 256)},
    **{f"hot_64k_{d}": ("hot", 65536, d, 4000) for d in (1, 64)},
    **{f"cold_4k_{d}": ("cold", 4096, d, 16000 if d > 1 else 3000) for d in (1, 8, 64, 256)},
    "cold_64k_64": ("cold", 65536, 64, 4000),
    **{f"direct_4k_{d}": ("direct", 4096, d, 8000 if d > 1 else 3000) for d in (1, 64)},
    **{f"write_4k_{d}": ("write", 4096, d, 10000) for d in (1, 8, 64)},
    "sync_4k_64": ("sync", 4096, 64, 1500),
    "small_32": ("small", SMALL_BYTES, 32, 4000),
    "idle": ("idle", 4096, 1, 40),
    **{f"stall_4k_{d}": ("stall", 4096, d, 20000) for d in (64, 256)},
    **{f"stall_64k_{d}": ("stall", 65536, d, 4000) for d in (64, 256)},
}


def parse_arm(arm: str) -> tuple[str, dict, str | None]:
    """Library, options and loop of an arm such as `treadle+threads+deferred@uvloop`."""
    name, _, loop = arm.partition("@")
    base, *words = name.split("+")
    if base not in ARMS:
        options_.refuse("--arms", f"one of {', '.join(ARMS)}, got {arm!r}")
    options: dict = {}
    for word in words:
        if word not in WORDS or base not in ("treadle", "limit"):
            options_.refuse(
                "--arms", f"{', '.join(ARMS)}; treadle and limit take +{', +'.join(WORDS)}; got {arm!r}"
            )
        options.update(WORDS[word])
    return base, options, loop or None


# ---- one operation, by arm: a function of (fd, block, offset) that is awaited


class Subject:
    """What an arm offers: read, write and sync at an offset, and a whole small file."""

    def __init__(self, arm: str, depth: int, folder: Path) -> None:
        arm, options, _ = parse_arm(arm)
        self.arm, self.depth, self.folder = arm, depth, folder
        self.closers: list = []
        limit = max(depth, 16)
        if arm == "treadle":
            from treadle import fileio

            pinned = options.pop("pinned", False)
            files = fileio.FileContext(max_requests=limit, **options)
            # Room for the direct reads' buffers.
            self.pinned = mmap.mmap(-1, depth << 16) if pinned else None
            if pinned and not files.register(self.pinned):
                raise OSError("the kernel pins no memory here")
            self.closers.append(files.close)
            self.read, self.write, self.sync = files.read, files.write, files.fdatasync
            self.readinto = files.readinto
            self.whole = (
                (lambda path: files.read_file(path, 2 * SMALL_BYTES)) if options else fileio.read_bytes
            )
        elif arm.startswith("caio") or arm == "treadle_shape":
            self._contexts(arm, limit)
        elif arm == "executor":
            pool = concurrent.futures.ThreadPoolExecutor(8)
            run = asyncio.get_running_loop().run_in_executor
            self.read = lambda fd, n, at: run(pool, os.pread, fd, n, at)
            self.write = lambda fd, data, at: run(pool, os.pwrite, fd, data, at)
            self.sync = lambda fd: run(pool, os.fdatasync, fd)
            self.whole = lambda path: run(pool, Path(path).read_bytes)

    def _contexts(self, arm: str, limit: int) -> None:
        if arm == "treadle_shape":
            from treadle import fileio as module
        else:
            import caio as module

        more = {"caio_plain": {"sqpoll": False}, "caio_deferred": {"sqpoll": False, "deferred": True}}.get(
            arm, {}
        )
        context = module.AsyncioContext(limit, **more)
        self.closers.append(context.close)
        self.read = lambda fd, n, at: context.read(n, fd, at)
        self.write, self.sync = (lambda fd, data, at: context.write(data, fd, at)), context.fdsync

    def buffers(self, depth: int, block: int) -> list:
        """Aligned memory for as many direct reads."""
        if self.pinned is None:
            return [mmap.mmap(-1, block) for _ in range(depth)]
        return [memoryview(self.pinned)[n * block:(n + 1) * block] for n in range(depth)]

    async def open(self, path: Path) -> None:
        """For libraries that read through file objects: one per worker, since a position is not shared."""
        if self.arm == "aiofile":
            import aiofile

            file = aiofile.AIOFile(str(path), "rb+" if path.exists() else "wb+")
            await file.open()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            self.read = lambda fd, n, at: file.read_bytes(n, at)
            self.write, self.sync = (
                lambda fd, data, at: file.write_bytes(data, at)
            ), lambda fd: file.fdsync()
            self.whole = self._aiofile_whole
        elif self.arm == "aiofiles":
            import aiofiles

            spare = [await aiofiles.open(path, "rb+") for _ in range(self.depth)]
            for file in spare:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

            async def read(fd, n, at):
                file = spare.pop()
                await file.seek(at)
                data = await file.read(n)
                spare.append(file)
                return data

            async def write(fd, data, at):
                file = spare.pop()
                await file.seek(at)
                count = await file.write(data)
                spare.append(file)
                return count

            self.read, self.write, self.whole = read, write, self._aiofiles_whole

    async def _aiofile_whole(self, path):
        import aiofile

        async with aiofile.async_open(path, "rb") as file:
            return await file.read()

    async def _aiofiles_whole(self, path):
        import aiofiles

        async with aiofiles.open(path, "rb") as file:
            return await file.read()


def prepare(folder: Path, mib: int) -> None:
    """The large file and the small ones."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "treadle-fileio.data"
    if not data.exists() or data.stat().st_size != mib << 20:
        with data.open("wb") as file:
            for _ in range(mib):
                file.write(b"a" * (1 << 20))
            os.fsync(file.fileno())
    for i in range(SMALL_FILES):
        path = folder / f"small-{i}"
        if not path.exists():
            path.write_bytes(b"b" * SMALL_BYTES)


def open_data(folder: Path, kind: str) -> int:
    fd = os.open(folder / "treadle-fileio.data", os.O_RDWR | (os.O_DIRECT if kind == "direct" else 0))
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return fd


def settle_cache(fd: int, kind: str, mib: int) -> None:
    """Puts the large file into the state that the kind wants: cached or dropped."""
    if kind == "cold":
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    elif kind in ("hot", "stall"):
        for at in range(0, mib << 20, 1 << 20):
            os.pread(fd, 1 << 20, at)


async def measure_case(arm: str, kind: str, block: int, depth: int, ops: int, folder: Path, mib: int) -> dict:
    """One sample: operations, wall and CPU time, and the ticker's longest stall where it is asked for."""
    fd = open_data(folder, kind)
    subject = Subject(arm, depth, folder)
    await subject.open(folder / "treadle-fileio.data")
    blocks = (mib << 20) // block
    order = random.Random(7)
    offsets: Iterator[int] = iter(())
    buffers = subject.buffers(depth, block) if kind == "direct" and subject.arm == "treadle" else []
    payload = b"c" * block
    names = itertools.cycle([str(folder / f"small-{i}") for i in range(SMALL_FILES)])

    async def reads() -> None:
        for at in offsets:
            if len(await subject.read(fd, block, at)) != block:
                raise OSError("short read")

    async def direct_reads() -> None:
        buffer = buffers.pop()
        for at in offsets:
            if await subject.readinto(fd, buffer, at) != block:
                raise OSError("short read")
        buffers.append(buffer)

    async def writes() -> None:
        for at in offsets:
            await subject.write(fd, payload, at)
            if kind == "sync":
                await subject.sync(fd)

    async def wholes() -> None:
        for _ in offsets:
            if len(await subject.whole(next(names))) != SMALL_BYTES:
                raise OSError("short file")

    async def idle() -> None:
        for at in offsets:
            await asyncio.sleep(0.05)
            await subject.read(fd, 4, at)

    worker = {
        "direct": direct_reads if buffers else reads,
        "write": writes,
        "sync": writes,
        "small": wholes,
        "idle": idle,
    }.get(kind, reads)
    stall = busy = 0.0
    done = False

    async def ticker() -> None:
        nonlocal stall, busy
        last, ran = time.perf_counter(), time.thread_time()
        while not done:
            await asyncio.sleep(0)
            now, runs = time.perf_counter(), time.thread_time()
            stall, last = max(stall, now - last), now
            busy, ran = max(busy, runs - ran), runs

    async def lap(count: int) -> tuple[int, int]:
        """Wall and CPU time, in nanoseconds, of so many operations on the file as the kind wants it."""
        nonlocal offsets
        settle_cache(fd, kind, mib)
        offsets = iter([order.randrange(blocks) * block for _ in range(count)] if count > blocks else
                       [n * block for n in order.sample(range(blocks), count)])
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        await asyncio.gather(*[worker() for _ in range(depth)])
        return time.perf_counter_ns() - wall, time.process_time_ns() - cpu

    await lap(max(depth, ops // 4))  # as the C tool: what a first lap pays for is not the operation's
    watch = asyncio.ensure_future(ticker()) if kind == "stall" else None
    wall, cpu = await lap(ops)
    done = True
    if watch is not None:
        await watch
    for close in subject.closers:
        close()
    os.close(fd)
    return {"ops": ops, "wall_us": wall / 1e3 / ops, "cpu_us": cpu / 1e3 / ops, "stall_ms": stall * 1e3,
            "stall_cpu_ms": busy * 1e3, "share": cpu / wall}


def child(args: argparse.Namespace) -> int:
    kind, block, depth, ops = CASES[args.case[0]]
    base, _, loop = parse_arm(args.arm)
    ops = max(depth, int(ops * args.scale * (0.25 if base in SLOW and kind != "idle" else 1)))
    run = getattr(importlib.import_module(loop or args.loop), "run")
    print(json.dumps(run(measure_case(args.arm, kind, block, depth, ops, args.folder, args.file_mib))))
    return 0


def limit_sample(args: argparse.Namespace, options: dict, kind: str, block: int, depth: int) -> dict:
    """The C tool on the same file, as one sample."""
    # The limit makes every call that it is asked for; treadle joins syncs that wait for the same file.
    words = ["--join", "0"]
    for key, value in options.items():
        words += [f"--{key}", str(int(value) if isinstance(value, bool) else value)]
    case = {
        "hot": "hot_read",
        "cold": "cold_read",
        "direct": "direct_read",
        "write": "write",
        "sync": "write_sync",
        "small": "small_files",
    }.get(kind)
    if case is None or args.limit is None:
        raise LookupError("no such row in C")
    command = [
        args.limit,
        "--folder",
        args.folder,
        "--depth",
        depth,
        "--block",
        block,
        "--file-mib",
        args.file_mib,
        "--samples",
        1,
        "--keep",
        1,
        *words,
        "--case",
        case,
    ]
    sample = rounds.tool_sample(command, arms_.Arm("limit", "limit"), args.timeout)[-1]
    if not sample["ok"]:
        raise LookupError(sample["error"])
    return {"ops": sample["ops"], "wall_us": sample["wall_us"], "cpu_us": sample["cpu_us"], "stall_ms": 0.0,
            "stall_cpu_ms": 0.0, "share": 0.0}


def measure(args: argparse.Namespace, arm: str, case: str) -> dict:
    """A sample of one arm in a process of its own."""
    kind, block, depth, _ = CASES[case]
    base, options, _ = parse_arm(arm)
    if kind == "direct" and base in ("aiofile", "aiofiles"):
        raise LookupError("its files are not opened with O_DIRECT")
    if base == "limit":
        return limit_sample(args, options, kind, block, depth)
    done = rounds.child(
        [
            sys.executable,
            __file__,
            "--child",
            "--arm",
            arm,
            "--case",
            case,
            "--loop",
            args.loop,
            "--folder",
            args.folder,
            "--scale",
            args.scale,
            "--file-mib",
            args.file_mib,
        ],
        env={},
        timeout=args.timeout,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise LookupError(said[-1] if said else f"the process ended with {done.returncode}")
    return json.loads(done.stdout)


def base_of(case: str) -> dict:
    """What every sample of a case has."""
    unit = {"idle": "share of a core", "stall": "ms"}.get(CASES[case][0], "ops/s")
    return {"case": case, "title": case.replace("_", " "), "part": "D", "unit": unit}


def failure(case: str, error: str) -> list[dict]:
    return [{**base_of(case), "ok": False, "kind": "failed", "error": error}]


def as_samples(case: str, found: dict) -> list[dict]:
    """The row of the case, and a second one of CPU per operation where that is held against a target too."""
    kind = CASES[case][0]
    value = {"idle": found["share"], "stall": found["stall_ms"]}.get(kind, 1e6 / found["wall_us"])
    sample = {
        **base_of(case),
        "ok": True,
        "ops": found["ops"],
        "value": value,
        "wall_us": found["wall_us"],
        "cpu_us": found["cpu_us"],
    }
    if kind == "stall":
        sample["extra"] = {"cpu_ms": found["stall_cpu_ms"]}
    if kind != "cold":
        return [sample]
    return [
        sample,
        {
            **sample,
            "case": f"{case}_cpu",
            "title": f"{sample['title']}, cpu",
            "unit": "cpu us/op",
            "value": found["cpu_us"],
        },
    ]


def engine_table(samples: dict[str, list[dict]], cases: list[str]) -> str:
    """A row for each engine, mode and submitter, a column for each case: operations/s in thousands and CPU us
    per operation."""
    lines = [
        "| in | engine | submits | SQPOLL | " + " | ".join(case.replace("_", " ") for case in cases) + " |",
        "|---" * (len(cases) + 4) + "|",
    ]
    for arm, taken in samples.items():
        base, options, _ = parse_arm(arm)
        head = [
            "C" if base == "limit" else "Python",
            options.get("engine", "default"),
            options.get("mode", "adaptive"),
            "yes" if options.get("sqpoll") else "no",
        ]
        cells = []
        for case in cases:
            good = [s for s in taken if s["case"] == case and s["ok"]]
            wall, cpu = (
                statistics.median([s[key] for s in good]) if good else None for key in ("wall_us", "cpu_us")
            )
            cells.append(f"{1e3 / wall:.1f}k / {cpu:.1f}" if good else "-")
        lines.append("| " + " | ".join([*head, *cells]) + " |")
    return "\n".join(lines)


def verdicts(documents: list[dict]) -> str:
    """Each row that has a target, for treadle's own API and for the class in caio's shape."""
    targets = json.loads(TARGETS.read_text())
    lines = ["| row | arm | figure | target | allowed | verdict |", "|---|---|---|---|---|---|"]
    measured = {document["arm"] for document in documents}
    for subject in [arm for arm in ("treadle", "treadle_shape") if arm in measured]:
        for row in comparison.compare(documents, targets, subject).rows:
            cell = row.cells.get(subject)
            for target in row.targets if cell is not None else ():
                allowed = "?" if target.limit is None else compare_print.figure(target.limit)
                state = "?" if target.met is None else "met" if target.met else "SHORT"
                lines.append(
                    f"| {row.title} | {subject} | {compare_print.figure(cell.median)} {row.unit} | {target.text} | "
                    f"{allowed} | {state} |"
                )
    return "\n".join(lines)


def table(samples: dict[str, list[dict]], cases: list[str]) -> str:
    """Operations/s and CPU per operation, and the rate as a share of the limit's, medians of the rounds."""
    lines = ["| case | " + " | ".join(samples) + " |", "|---" * (len(samples) + 1) + "|"]
    for case in cases:
        good = {arm: [s for s in taken if s["case"] == case and s["ok"]] for arm, taken in samples.items()}
        middle = {
            arm: {key: statistics.median(s[key] for s in taken) for key in ("value", "wall_us", "cpu_us")}
            for arm, taken in good.items()
            if taken
        }
        cells = []
        for arm in samples:
            if arm not in middle:
                cells.append("-")
            elif CASES[case][0] == "idle":
                cells.append(f"{100 * middle[arm]['value']:.2f}%")
            elif CASES[case][0] == "stall":
                cpu_ms = statistics.median(s["extra"]["cpu_ms"] for s in good[arm])
                cells.append(f"{middle[arm]['value']:.2f} ms, {cpu_ms:.2f} of CPU")
            else:
                limit = middle.get("limit") if arm != "limit" else None
                share = f" ({limit['wall_us'] / middle[arm]['wall_us']:.2f})" if limit else ""
                cells.append(f"{1e3 / middle[arm]['wall_us']:.1f}k / {middle[arm]['cpu_us']:.1f}{share}")
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = options_.Parser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--arms",
        help="comma-separated, default: all that are installed; "
        f"treadle and limit take +{', +'.join(WORDS)}, each arm @LOOP",
    )
    parser.add_argument(
        "--variants", action="store_true", help="instead of those arms, treadle's engines and modes"
    )
    parser.add_argument(
        "--table",
        action="store_true",
        help="instead of those arms, each engine, mode and submitter in C and in Python, hot and cold, "
        "at each depth",
    )
    parser.add_argument("--case", action="append", default=[], metavar="PATTERN",
                        help=f"rows, repeatable, default: all: {', '.join(CASES)}")
    rounds.add_arguments(parser)
    parser.add_argument("--scale", type=options_.number(float, 0.001, 100), default=1.0,
                        help="share of each sample's operations, 0.001 to 100 (1)")
    parser.add_argument("--smoke", action="store_true", help="one short round")
    parser.add_argument("--loop", default="treadle", help="of every arm without @LOOP: a module with run()")
    parser.add_argument(
        "--folder",
        type=options_.folder,
        metavar="FOLDER",
        help="where the data files are made, and kept; default: one under out/ that is removed at the end",
    )
    parser.add_argument(
        "--file-mib",
        type=options_.number(int, 1, 65536),
        default=256,
        help="size of the large file, 1 to 65536 MiB (256)",
    )
    parser.add_argument("--limit", type=options_.existing, metavar="FILE", help="the built C tool")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if importlib.util.find_spec(args.loop.partition(".")[0]) is None:
        options_.refuse("--loop", f"a module with run() that is installed, got {args.loop!r}")
    if args.smoke:
        args.rounds, args.scale, args.file_mib = 1, 0.02, 8
    return args


def available(args: argparse.Namespace, arm: str) -> bool:
    """Whether this interpreter has the arm's library, or the C tool was named."""
    base, _, _ = parse_arm(arm)
    if base == "limit":
        return args.limit is not None
    return base == "executor" or (base in NEEDS and importlib.util.find_spec(NEEDS[base]) is not None)


def choose_arms(args: argparse.Namespace) -> list[arms_.Arm]:
    """The arms asked for; of the default ones those that can run."""
    names = (
        args.arms.split(",") if args.arms else TABLE if args.table else VARIANTS if args.variants else ARMS
    )
    missing = [name for name in names if not available(args, name)]
    if missing and args.arms:
        options_.refuse("--arms", f"not here: {', '.join(missing)} (the arm limit needs --limit)")
    return [arms_.Arm(name, name) for name in names if name not in missing]


@contextlib.contextmanager
def data_folder(args: argparse.Namespace) -> Iterator[None]:
    """The data files: in the folder that was named, where they stay for the next run, or in one that is
    removed."""
    with contextlib.ExitStack() as stack:
        if args.folder is None:
            (report.ROOT / "out").mkdir(exist_ok=True)
            args.folder = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="fileio-data-", dir=report.ROOT / "out")
                )
            )
        try:
            prepare(args.folder, args.file_mib)
        except OSError as error:
            options_.refuse(
                "--folder",
                f"a folder with room for the data files ({error.strerror}), got {str(args.folder)!r}",
            )
        yield


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    if args.child:
        return child(args)
    if args.table and not args.case:
        args.case = ["hot_4k_*", "cold_4k_*"]
    cases = options_.matching(args.case, CASES)
    chosen = choose_arms(args)
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    shown = {
        "rounds": args.rounds,
        "scale": args.scale,
        "loop": args.loop,
        "case": args.case,
        "file_mib": args.file_mib,
    }
    found = rounds.Plan(
        "fileio.py",
        chosen,
        cases,
        args.rounds,
        rounds.new_folder(args, "fileio"),
        shown,
        measure=lambda arm, case, turn: as_samples(case, measure(args, arm.name, case)),
        failure=failure,
    )
    with data_folder(args):
        code = rounds.run(found)
    if found.samples and args.table:
        text = engine_table(found.samples, cases)
        (found.out / "table.md").write_text(text + "\n")
        print(f"\n{text}\n\nwritten to {found.out}")
    elif found.samples:
        text = f"{table(found.samples, cases)}\n\n{verdicts(comparison.load(found.files()))}"
        (found.out / "table.md").write_text(text + "\n")
        print(f"\n{text}\n\nwritten to {found.out}")
    return rounds.exit_code(found, code)


if __name__ == "__main__":
    sys.exit(rounds.guarded(main))
