"""perf/bench/compare.py: medians over rounds, verdicts by ranges, failed samples left out, targets."""
import json
import pathlib
import random
import statistics
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "perf" / "bench"))

import arms  # noqa: E402
import compare  # noqa: E402
import compare_print  # noqa: E402
import comparison  # noqa: E402
import paired  # noqa: E402
import table_plot  # noqa: E402

MACHINE = {"cpu": "test", "cores": 2, "kernel": "6", "load": 0.5}


def sample(value, round=0, case="row", unit="cpu us/op", **more):
    return {"case": case, "unit": unit, "ok": True, "round": round, "ops": 10, "value": value,
            "wall_us": more.pop("wall", value), "cpu_us": value, **more}


def failure(case="row", kind="failed", error="it broke"):
    return {"case": case, "unit": "cpu us/op", "ok": False, "kind": kind, "error": error}


def document(arm, *samples):
    return {"tool": "test", "version": "0", "commit": "unknown", "arm": arm, "machine": MACHINE, "args": {},
            "samples": list(samples), "summary": {}}


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
    row = only_row(
        rounds("treadle", 1.0),
        rounds("uvloop", 4.0),
        rounds("uvloop", 2.0),
        rounds("treadle", 3.0),
        rounds("treadle", 2.0),
        rounds("uvloop", 3.0),
    )
    assert [(c.median, c.low, c.high, c.rounds) for c in row.cells.values()] == [(2, 1, 3, 3), (3, 2, 4, 3)]


def test_a_single_round_takes_its_range_from_its_samples():
    cell = only_row(document("uvloop", sample(1), sample(4), sample(2))).cells["uvloop"]
    assert (cell.median, cell.low, cell.high, cell.rounds) == (2, 1, 4, 1)


@pytest.mark.parametrize("mine, other, unit, expected", [
    ((1, 2, 2), (3, 4, 3), "cpu us/op", "ahead"),
    ((3, 4, 3), (1, 2, 1), "cpu us/op", "behind"),
    ((1, 3, 2), (2, 4, 3), "cpu us/op", "overlap"),
    ((1, 2, 1), (3, 4, 4), "requests/s", "behind"),
    ((3, 4, 3), (1, 2, 1), "requests/s", "ahead"),
    ((1, 2, 1), (2, 3, 2), "cpu us/op", "overlap"),
    ((1, 2), (3, 4, 5), "cpu us/op", "too few"),
    ((1,), (3,), "cpu us/op", "too few"),
])
def test_the_verdict_is_whether_the_ranges_of_three_rounds_meet(mine, other, unit, expected):
    row = only_row(rounds("treadle", *mine, unit=unit), rounds("uvloop", *other, unit=unit))
    assert row.deltas["uvloop"].verdict == expected


def test_a_tie_is_an_overlap_and_both_are_best():
    row = only_row(rounds("treadle", 2, 2, 2), rounds("uvloop", 2, 2, 2))
    assert row.best == ["treadle", "uvloop"]
    assert row.deltas["uvloop"] == comparison.Delta(1, "overlap", 1, 1, 1, 3)


def test_two_arms_that_needed_none_of_it_tie():
    row = only_row(rounds("treadle", 0, 0, 0), rounds("uvloop", 0, 0, 0), rounds("asyncio", 3, 3, 3))
    assert row.best == ["treadle", "uvloop"]
    assert {arm: (delta.ratio, delta.verdict) for arm, delta in row.deltas.items()} == {
        "uvloop": (1, "overlap"), "asyncio": (0, "ahead")}


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
    found = compared(
        document("treadle", sample(1, 0, **quiet), sample(3, 1, **noisy)), rounds("uvloop", 5, 6)
    )
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
    ("lowest", 4.0, True),
])
def test_a_target_is_a_ratio_to_what_ran_beside_it(expression, limit, met):
    row = only_row(
        rounds("treadle", 3, 3), rounds("uvloop", 6, 6), rounds("asyncio", 4, 4), targets=[expression]
    )
    (target,) = row.targets
    assert target.limit == (None if limit is None else pytest.approx(limit))
    assert target.met is met


@pytest.mark.parametrize(
    "mine, other, met", [((3, 4, 5), (4, 5, 6), True), ((5, 6, 7), (4, 4, 5), True), ((6, 7), (4, 5), False)]
)
def test_the_lowest_may_also_be_one_whose_range_meets_the_lowest(mine, other, met):
    row = only_row(
        rounds("treadle", *mine), rounds("uvloop", *other), rounds("asyncio", 9, 9), targets=["lowest"]
    )
    assert row.targets[0].met is met


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
    delta = only_row(rounds("treadle", *slow), rounds("uvloop", *(2 * v for v in slow))).deltas["uvloop"]
    assert (delta.paired, delta.low, delta.high, delta.pairs) == (0.5, 0.5, 0.5, 5)


def test_rounds_that_only_one_arm_has_make_no_pair():
    row = only_row(document("treadle", sample(1, 0), failure()), document("uvloop", sample(2, 1)))
    assert row.deltas["uvloop"].paired is None and row.deltas["uvloop"].pairs == 0


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8])
def test_the_interval_is_what_drawing_again_and_again_would_find(count):
    draw = random.Random(count)
    values = [draw.uniform(0.5, 2) for _ in range(count)]
    medians = sorted(statistics.median(draw.choices(values, k=count)) for _ in range(40_000))
    found = {round(median, 9): chance for median, chance in drawn_chances(values).items()}
    assert sum(found.values()) == pytest.approx(1)
    for median in set(medians):
        assert medians.count(median) / len(medians) == pytest.approx(found[round(median, 9)], abs=0.015)
    low, high = paired.interval(values)
    assert sum(chance for median, chance in found.items() if low - 1e-9 <= median <= high + 1e-9) >= 0.95
    assert min(values) <= low <= high <= max(values)


def drawn_chances(values):
    ordered = sorted(values)
    chances = {}
    for (i, j), chance in paired._middle_chances(len(values)).items():
        median = (ordered[i] + ordered[j]) / 2
        chances[median] = chances.get(median, 0) + chance
    return chances


def test_any_arm_is_held_against_any_other():
    three = [rounds("treadle", 2, 2, 2), rounds("uvloop", 4, 4, 4), rounds("asyncio", 8, 8, 8)]
    row = only_row(*three, subject="asyncio", against=["uvloop"])
    assert {arm: delta.ratio for arm, delta in row.deltas.items()} == {"uvloop": 2}
    row = only_row(*three[1:], against=["uvloop"])
    assert {arm: delta.ratio for arm, delta in row.deltas.items()} == {"uvloop": 2}


@pytest.mark.parametrize("more, option", [
    ({"subject": "rloop"}, "--subject"), ({"against": ["rloop"]}, "--against")])
def test_an_arm_that_is_not_there_is_refused_with_the_list_of_those_that_are(more, option):
    with pytest.raises(SystemExit, match=f"{option}: one of the arms treadle, uvloop, got 'rloop'"):
        compared(rounds("treadle", 1), rounds("uvloop", 1), **more)


def test_figures_in_different_units_are_refused():
    with pytest.raises(SystemExit, match="row: measured in 'cpu us/op' and in 'ms'"):
        compared(rounds("treadle", 1), rounds("uvloop", 1, unit="ms"))


def test_the_command_writes_text_markdown_and_a_picture(tmp_path, capsys):
    files = []
    for arm, value in (("treadle", 1.0), ("uvloop", 2.0), ("asyncio", 4.0)):
        files.append(tmp_path / f"{arm}.json")
        files[-1].write_text(json.dumps(rounds(arm, value, value + 0.5)))
    assert (
        compare.main(
            [*map(str, files), "--markdown", str(tmp_path / "a.md"), "--png", str(tmp_path / "a.png")]
        )
        == 0
    )
    assert "1.25 [1.00..1.50]" in capsys.readouterr().out
    assert "**1.25 [1.00..1.50]**" in (tmp_path / "a.md").read_text()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_shows_the_rows_asked_for(tmp_path, capsys):
    path = tmp_path / "treadle.json"
    path.write_text(
        json.dumps(document("treadle", *(sample(1, case=case) for case in ("list_c16_p50", "list_c16_rate"))))
    )
    assert compare.main([str(path), "--case", "*_rate", "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| list_c16_rate |" in printed and "p50" not in printed


@pytest.mark.parametrize(
    "spoil",
    [
        "",
        "[]",
        "nonsense",
        '{"arm": "a"}',
        "samples as text",
        "a sample without its unit",
        "a value that is text",
    ],
)
def test_a_file_that_is_no_measurement_is_named_with_what_is_wrong(spoil, tmp_path, capsys):
    path = tmp_path / "broken.json"
    good = rounds("treadle", 1.0)
    if spoil == "samples as text":
        spoil = json.dumps({**good, "samples": "none"})
    elif spoil.startswith("a sample"):
        del good["samples"][0]["unit"]
        spoil = json.dumps(good)
    elif spoil.startswith("a value"):
        good["samples"][0]["value"] = "1"
        spoil = json.dumps(good)
    path.write_text(spoil)
    with pytest.raises(SystemExit) as ended:
        compare.main([str(path)])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "broken.json: not a measurement" in line


def test_a_row_that_no_file_has_is_refused_with_the_list_of_those_that_are_there(tmp_path, capsys):
    path = tmp_path / "treadle.json"
    path.write_text(json.dumps(rounds("treadle", 1)))
    with pytest.raises(SystemExit):
        compare.main([str(path), "--case", "row", "--case", "other"])
    assert "--case: one of row, or a pattern of them, got 'other'" in capsys.readouterr().err


def test_the_comparison_as_json_has_all_of_it(tmp_path, capsys):
    files = []
    for arm, value in (("treadle", 1.0), ("uvloop", 0.0)):
        files.append(str(tmp_path / f"{arm}.json"))
        pathlib.Path(files[-1]).write_text(json.dumps(rounds(arm, value, value, value)))
    compare.main([*files, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert found["subject"] == "treadle" and found["rows"][0]["deltas"]["uvloop"]["ratio"] is None


def test_arms_are_rotated_so_that_none_always_goes_first():
    chosen = [arms.parse(name) for name in ("treadle", "uvloop", "asyncio")]
    assert [arms.rotated(chosen, turn)[0].name for turn in range(4)] == [
        "treadle",
        "uvloop",
        "asyncio",
        "treadle",
    ]


def test_an_arm_names_its_loop_its_control_and_its_environment():
    assert arms.parse("treadle#2").loop == "treadle"
    assert arms.parse("uvloop+mmap").env == {"MALLOC_MMAP_THRESHOLD_": "4194304"}
    for wrong in ("uvloop+unknown", "", "a b", "@x", "uvloop@"):
        with pytest.raises(SystemExit):
            arms.parse(wrong)
    versioned, built = arms.parse("uvloop==0.22.1"), arms.parse("treadle@/a+b/c.whl#2+mmap")
    assert (versioned.loop, versioned.build) == ("uvloop", "==0.22.1")
    assert (built.loop, built.build, built.env) == (
        "treadle",
        "/a+b/c.whl",
        {"MALLOC_MMAP_THRESHOLD_": "4194304"},
    )
    assert arms.parse("my.module:make").module == "my.module"


def test_the_picture_of_readme_can_be_drawn_from_its_table(tmp_path):
    arms = []
    rows = table_plot.rows(table_plot.PAGE.read_text(), "Real programs", arms)
    assert arms == ["treadle", "uvloop", "asyncio"] and len(rows) > 10
    assert all(cell.low <= cell.median <= cell.high for row in rows for cell in row.cells.values())
    table_plot.main("Real programs", tmp_path / "programs.png")
    assert (tmp_path / "programs.png").stat().st_size > 10_000
