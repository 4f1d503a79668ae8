"""The file benchmark still runs: a short round of a few rows, into the common schema."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_smoke_round_writes_each_arm(tmp_path):
    cases = [
        word for case in ("hot_4k_8", "write_4k_1", "small_32", "stall_4k_64") for word in ("--case", case)
    ]
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "perf" / "bench" / "fileio.py"),
            "--smoke",
            "--arms",
            "treadle,treadle_shape,executor,treadle+threads+deferred@treadle",
            "--folder",
            str(tmp_path / "data"),
            "--out",
            str(tmp_path / "out"),
            *cases,
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert "| stall 4k 64 | treadle_shape |" in done.stdout
    for arm in ("treadle", "executor", "treadle+threads+deferred@treadle"):
        document = json.loads((tmp_path / "out" / f"{arm}.json").read_text())
        assert document["tool"] == "fileio.py" and document["arm"] == arm
        assert all(sample["ok"] for sample in document["samples"]), document["samples"]
        assert len(document["summary"]) == 4


def test_each_target_names_a_row_of_the_benchmark():
    path = ROOT / "perf" / "bench" / "fileio.py"
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location("bench_fileio", path)
        bench = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bench)
    finally:
        sys.path.remove(str(path.parent))
    for row in json.loads(bench.TARGETS.read_text())["rows"]:
        assert row.removesuffix("_cpu") in bench.CASES
