"""perf/bench/compare.py: medians over rounds, verdicts by ranges, failed samples left out, targets."""
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "perf" / "bench"))

import arms  # noqa: E402
import compare  # noqa: E402
import compare_print  # noqa: E402
import comparison  # noqa: E402
import paired  # noqa: E402

MACHINE = {"cpu": "test", "cores": 2, "kernel": "6", "load": 0.5}


def sample(value, round=0, case="row", unit="cpu us/op", **more):
    return {"case": case, "unit": unit, "ok": True, "round": round, "ops": 10, "value": value,
            "wall_us": more.pop("wall", value), "cpu_us": value, **more}


def failure(case="row", kind="failed", error="it broke"):
    return {"case": case, "unit": "cpu us/op", "ok": False, "kind": kind, "error": error}


def document(arm, *samples):
    return {"tool": "test", "arm": arm, "machine": MACHINE, "samples": list(samples)}


def rounds(arm, *values, **more):
    return document(arm, *(sample(value, i, **more) for i, value in enumerate(values)))


def compared(*documents, targets=None, **more):
    if targets is not None:
        targets = {"peers": ["asyncio", "uvloop", "rsloop"], "rows": {"row": targets}}
    return comparison.compare(list(documents), targets, **more)


def only_row(*documents, **more):
    (row,) = compared(*documents, **more).rows
    return row


def test_each_round_counts_once_however_many_samples_it_has():
    arm = document("uvloop", sample(1, 0), sample(1, 0), sample(1, 0), sample(3, 1), sample(5, 2))
    cell = only_row(arm).cells["uvloop"]
    assert (cell.median, cell.low, cell.high, cell.rounds) == (3, 1, 5, 3)


def test_files_of_one_arm_are_further_rounds_whatever_order_the_arms_ran_in():
    row = only_row(rounds("treadle", 1.0), rounds("uvloop", 4.0), rounds("uvloop", 2.0), rounds("treadle", 3.0),
                   rounds("treadle", 2.0), rounds("uvloop", 3.0))
    assert [(c.median, c.low, c.high, c.rounds) for c in row.cells.values()] == [(2, 1, 3, 3), (3, 2, 4, 3)]


def test_a_single_round_takes_its_range_from_its_samples():
    cell = only_row(document("uvloop", sample(1), sample(4), sample(2))).cells["uvloop"]
    assert (cell.median, cell.low, cell.high, cell.rounds) == (2, 1, 4, 1)


@pytest.mark.parametrize("mine, other, unit, expected", [
    ((1, 2), (3, 4), "cpu us/op", "ahead"),
    ((3, 4), (1, 2), "cpu us/op", "behind"),
    ((1, 3), (2, 4), "cpu us/op", "overlap"),
    ((1, 2), (3, 4), "requests/s", "behind"),
    ((3, 4), (1, 2), "requests/s", "ahead"),
    ((1, 2), (2, 3), "cpu us/op", "overlap"),
])
def test_the_verdict_is_whether_the_ranges_meet(mine, other, unit, expected):
    row = only_row(rounds("treadle", *mine, unit=unit), rounds("uvloop", *other, unit=unit))
    assert row.deltas["uvloop"][1] == expected


def test_a_tie_is_an_overlap_and_both_are_best():
    row = only_row(rounds("treadle", 2, 2), rounds("uvloop", 2, 2))
    assert row.best == ["treadle", "uvloop"]
    assert row.deltas["uvloop"] == (1, "overlap")


def test_two_arms_that_needed_none_of_it_tie():
    row = only_row(rounds("treadle", 0, 0), rounds("uvloop", 0, 0), rounds("asyncio", 3, 3))
    assert row.best == ["treadle", "uvloop"]
    assert row.deltas == {"uvloop": (1, "overlap"), "asyncio": (0, "ahead")}


def test_the_best_arm_of_a_rate_is_the_highest():
    assert only_row(rounds("treadle", 5, unit="ops/s"), rounds("uvloop", 9, unit="ops/s")).best == ["uvloop"]


def test_failed_samples_are_counted_and_left_out():
    found = compared(document("treadle", sample(1, 0), failure(), sample(3, 1)), rounds("uvloop", 5, 6))
    cell = found.rows[0].cells["treadle"]
    assert (cell.median, cell.failed, cell.rounds) == (2, 1, 2)
    assert found.failed == 1
    assert "(1 failed)" in compare_print.text(found)


def test_a_round_that_others_disturbed_is_marked():
    quiet, noisy = {"extra": {"noisy": False}}, {"extra": {"noisy": True}}
    found = compared(document("treadle", sample(1, 0, **quiet), sample(3, 1, **noisy)), rounds("uvloop", 5, 6))
    assert {arm: cell.noisy for arm, cell in found.rows[0].cells.items()} == {"treadle": 1, "uvloop": 0}
    assert compare_print.cell_text(found.rows[0], "treadle", {}).endswith("~")
    assert "~ marks 1 figures" in compare_print.text(found)


def test_an_arm_with_failures_only_has_no_figure_but_is_named():
    found = compared(document("treadle", failure(), failure()), rounds("uvloop", 5, 6), targets=["0.9 best"])
    row = found.rows[0]
    assert "treadle" not in row.cells and row.failed == {"treadle": 2}
    assert row.targets[0].met is None
    assert "failed (2)" in compare_print.text(found)


def test_what_a_loop_cannot_do_is_no_failure():
    found = compared(rounds("treadle", 1, 2), document("rloop", failure(kind="unsupported", error="no TLS")))
    assert found.failed == 0
    assert "n/a" in compare_print.text(found)


@pytest.mark.parametrize("http, kept", [
    ({"status": {"200": 10}, "errors": {"aborted due to deadline": 16}}, True),
    ({"status": {"200": 10, "204": 1}}, True),
    ({"status": {"200": 10, "500": 1}}, False),
    ({"status": {"200": 10}, "errors": {"connection refused": 1}}, False),
    ({"status": {"200": 10}, "errors": {"aborted due to deadline": 3, "connection reset": 1}}, False),
    ({"status": {"200": 10, "503": 0}, "errors": {"timeout": 0}}, True),
])
def test_requests_cut_off_at_the_end_of_an_oha_run_are_no_failure_and_other_errors_are(http, kept):
    row = only_row(document("treadle", sample(1, http=http)))
    assert ("treadle" in row.cells) is kept
    assert row.failed == ({} if kept else {"treadle": 1})


def test_a_row_that_an_arm_did_not_run_is_left_open():
    found = compared(rounds("treadle", 1, 2), rounds("treadle", 1, 2, case="other"), rounds("uvloop", 3, 4))
    assert [list(row.cells) for row in found.rows] == [["treadle", "uvloop"], ["treadle"]]
    assert compare_print.text(found).splitlines()[3].split()[-1] == "-"


@pytest.mark.parametrize("expression, limit, met", [
    ("0.9 best", 3.6, True),
    ("0.5 best", 2.0, False),
    ("0.25 uvloop", 1.5, False),
    ("asyncio + 5", 9.0, True),
    ("1.1 libuv", None, None),
    ("under 2", 2.0, False),
])
def test_a_target_is_a_ratio_to_what_ran_beside_it(expression, limit, met):
    row = only_row(rounds("treadle", 3, 3), rounds("uvloop", 6, 6), rounds("asyncio", 4, 4), targets=[expression])
    (target,) = row.targets
    assert target.limit == (None if limit is None else pytest.approx(limit))
    assert target.met is met


def test_the_limit_and_the_variants_are_no_peers():
    row = only_row(rounds("treadle", 3), rounds("uvloop", 6), rounds("libuv", 1), rounds("uvloop+mmap", 2),
                   rounds("treadle#2", 2.5), targets=["1.0 best"])
    assert row.ratio == 0.5
    assert row.targets[0].met


def test_worse_wall_time_than_the_best_peer_is_said():
    row = only_row(rounds("treadle", 1, 1, wall=9), rounds("uvloop", 2, 2, wall=3), targets=["1.0 best"])
    assert row.targets[0].met and row.wall_worse
    assert "wall worse" in compare_print.target_text(row)


def test_an_unreadable_target_is_refused():
    with pytest.raises(SystemExit):
        compared(rounds("treadle", 1), rounds("uvloop", 1), targets=["faster than uvloop"])


def test_every_target_of_the_table_can_be_read():
    table = json.loads((ROOT / "perf" / "targets.json").read_text())
    documents = [rounds(arm, 1, case=case) for arm in ("treadle", "asyncio", "uvloop", "libuv")
                 for case in table["rows"]]
    found = comparison.compare(documents, table)
    assert [row.name for row in found.rows] == list(table["rows"])
    assert all(target.met is not None for row in found.rows for target in row.targets)


def test_the_control_is_reported_and_without_a_subject_nothing_is_judged():
    found = compared(rounds("treadle", 2), rounds("treadle#2", 4))
    assert any("between 0.50 and 0.50" in note for note in compare_print.notes(found))
    assert only_row(rounds("asyncio", 2), rounds("uvloop", 4)).deltas == {}


def test_a_machine_that_slows_down_both_arms_of_a_round_leaves_their_ratio():
    slow = [1, 2, 4, 8, 16]
    (line,) = paired.table([rounds("treadle", *slow), rounds("uvloop", *(2 * v for v in slow))], "treadle")
    assert "0.500  [0.500..0.500]  5 pairs" in line


def test_rounds_that_only_one_arm_has_make_no_pair():
    documents = [document("treadle", sample(1, 0), failure()), document("uvloop", sample(2, 1))]
    assert paired.table(documents, "treadle") == []


def test_the_command_writes_text_markdown_and_a_picture(tmp_path, capsys):
    files = []
    for arm, value in (("treadle", 1.0), ("uvloop", 2.0), ("asyncio", 4.0)):
        files.append(tmp_path / f"{arm}.json")
        files[-1].write_text(json.dumps(rounds(arm, value, value + 0.5)))
    assert compare.main([*map(str, files), "--markdown", str(tmp_path / "a.md"), "--png", str(tmp_path / "a.png")]) == 0
    assert "1.25 [1.00..1.50]" in capsys.readouterr().out
    assert "**1.25 [1.00..1.50]**" in (tmp_path / "a.md").read_text()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_shows_the_rows_asked_for(tmp_path, capsys):
    path = tmp_path / "treadle.json"
    path.write_text(json.dumps(document("treadle", *(sample(1, case=case) for case in ("list_c16_p50", "list_c16_rate")))))
    assert compare.main([str(path), "--case", "*_rate", "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| list_c16_rate |" in printed and "p50" not in printed


def test_a_file_that_is_no_measurement_is_named(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text("{}")
    with pytest.raises(SystemExit, match="broken.json"):
        compare.main([str(path)])


def test_arms_are_rotated_so_that_none_always_goes_first():
    chosen = [arms.parse(name) for name in ("treadle", "uvloop", "asyncio")]
    assert [arms.rotated(chosen, turn)[0].name for turn in range(4)] == ["treadle", "uvloop", "asyncio", "treadle"]


def test_an_arm_names_its_loop_its_control_and_its_environment():
    assert arms.parse("treadle#2").loop == "treadle"
    assert arms.parse("uvloop+mmap").env == {"MALLOC_MMAP_THRESHOLD_": "4194304"}
    with pytest.raises(SystemExit):
        arms.parse("uvloop+unknown")
