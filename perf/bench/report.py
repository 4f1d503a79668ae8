"""The one JSON object every tool writes (perf/schema.json): who measured, where, each sample, a summary per row."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def version() -> str:
    """The project's version, which lives in the top CMakeLists.txt only."""
    try:
        text = (ROOT / "CMakeLists.txt").read_text()
    except OSError:
        return "0"
    found = re.search(r"VERSION\s+(\d+\.\d+\.\d+)", text)
    return found.group(1) if found else "0"


def commit() -> str:
    """The commit of the working tree, or `unknown` outside a repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"],
            capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


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
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
    }


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
    target.write_text(text)
