"""The one JSON object every tool writes (perf/schema.json): who measured, where, each sample, a summary per
row."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _stamp() -> list[str]:
    """Version and commit as the installation wrote them beside this file; empty in the repository."""
    try:
        return (Path(__file__).resolve().parent / "VERSION").read_text().split()
    except OSError:
        return []


def version() -> str:
    """The project's version, which lives in the top CMakeLists.txt only."""
    if stamp := _stamp():
        return stamp[0]
    try:
        text = (ROOT / "CMakeLists.txt").read_text()
    except OSError:
        return "0"
    found = re.search(r"VERSION\s+(\d+\.\d+\.\d+)", text)
    return found.group(1) if found else "0"


def commit() -> str:
    """The commit of the working tree, or `unknown` outside a repository."""
    if stamp := _stamp():
        return stamp[1]
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"],
            capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def affinity() -> str:
    """The processors that this process may run on, as in `0-2,5`."""
    parts: list[list[int]] = []
    for cpu in sorted(os.sched_getaffinity(0)):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def machine() -> dict:
    """What a reader must know to place the figures."""
    cpu = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    found = {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
        "affinity": affinity(),
    }
    try:
        found["governor"] = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        pass
    return found


def summarize(samples: list[dict]) -> dict:
    """Fold samples into median, min, max, n, unit per row; failed ones are counted and left out."""
    rows: dict[str, dict] = {}
    for sample in samples:
        rows.setdefault(sample["case"], []).append(sample)
    summary = {}
    for case, group in rows.items():
        good = [s for s in group if s["ok"]]
        values = [s["value"] for s in good]
        summary[case] = {
            "median": statistics.median(values) if values else None,
            "min": min(values, default=None),
            "max": max(values, default=None),
            "n": len(values),
            "failed": len(group) - len(good),
            "unit": group[0]["unit"],
            "better": "higher" if group[0]["unit"].endswith("/s") else "lower",
        }
    return summary


def document(tool: str, arm: str, args: dict, samples: list[dict], **more) -> dict:
    """The object itself; `more` may carry extra members such as package versions."""
    return {
        "tool": tool,
        "version": version(),
        "commit": commit(),
        "arm": arm,
        "machine": machine(),
        "args": args,
        **more,
        "samples": samples,
        "summary": summarize(samples),
    }


def write(path: str | Path, doc: dict) -> None:
    """Write `doc` to `path`, or to standard output for `-`."""
    text = json.dumps(doc, indent=1) + "\n"
    if str(path) == "-":
        print(text, end="")
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not target.is_file():
        target.write_text(text)
        return
    # Whole or not at all: a run may be ended at any moment.
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_text(text)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
