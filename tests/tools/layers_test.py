"""Goal: layers.py passes the tree as it is and sees each kind of violation planted in a copy of it."""
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import layers  # noqa: E402


class Planted(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        shutil.copytree(
            ROOT / "libs", self.root / "libs", ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
        shutil.copytree(ROOT / "cmake", self.root / "cmake")

    def tearDown(self):
        self.folder.cleanup()

    def plant(self, place, line):
        path = self.root / place
        path.write_text(path.read_text() + line + "\n")
        return layers.check(self.root)

    def assert_seen(self, problems, place, word):
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(place, problems[0])
        self.assertIn(word, problems[0])

    def test_the_tree_has_no_violation(self):
        self.assertEqual(layers.check(ROOT), [])

    def test_core_may_not_include_wake(self):
        place = "libs/core/src/sched.c"
        self.assert_seen(self.plant(place, '#include "treadle/inbox.h"'), place, "inbox.h of wake")

    def test_angle_brackets_do_not_hide_a_violation(self):
        place = "libs/wake/src/wake.c"
        self.assert_seen(self.plant(place, "#  include <treadle/sched.h>"), place, "sched.h of core")

    def test_a_public_header_counts_as_its_lib(self):
        place = "libs/base/include/treadle/list.h"
        self.assert_seen(self.plant(place, '#include "treadle/turn.h"'), place, "turn.h of core")

    def test_python_and_libuv_belong_to_pyloop(self):
        for name in ("Python.h", "uv.h"):
            self.tearDown()
            self.setUp()
            self.assert_seen(self.plant("libs/wake/src/inbox.c", f"#include <{name}>"), "inbox.c", name)

    def test_the_inside_of_another_lib_is_closed(self):
        place = "libs/wake/src/wake.c"
        self.assert_seen(self.plant(place, '#include "sched_internal.h"'), place, "sched_internal.h")

    def test_a_folder_of_pyloop_may_not_include_one_above_it(self):
        place = "libs/pyloop/src/poll/watch.c"
        self.assert_seen(
            self.plant(place, '#include "loop/loop.h"'), place, "poll/ may not include loop/loop.h"
        )

    def test_a_folder_of_pyloop_may_not_call_one_above_it(self):
        place = "libs/pyloop/src/ground/audit.c"
        line = "void tdl__raise_uv(int code);\nvoid tdl__ask(void) {\n    tdl__raise_uv(1);\n}"
        self.assert_seen(self.plant(place, line), place, "ground/ may not use tdl__raise_uv of poll/")

    def test_a_comment_that_names_a_function_above_is_no_call(self):
        self.assertEqual(self.plant("libs/pyloop/src/ground/audit.c", "/* tdl__raise_uv() is above */"), [])

    def test_a_table_of_methods_counts_as_a_call(self):
        place = "libs/pyloop/src/loop/loop.c"
        line = "extern PyMethodDef tdl__dns_methods[];\nPyMethodDef *tdl__own = tdl__dns_methods;"
        self.assert_seen(self.plant(place, line), place, "tdl__dns_methods of dns/")

    def test_folders_side_by_side_do_not_know_each_other(self):
        place = "libs/pyloop/src/sock/connect.c"
        self.assert_seen(self.plant(place, '#include "transport/base.h"'), place, "transport/base.h")

    def test_a_circle_in_either_table_is_seen(self):
        for place, line, word in (
            ("wake", "set(TREADLE_LAYER_base core)", "base stands on itself"),
            ("poll", "set(TREADLE_FOLDER_ground loop)", "folder ground stands on itself"),
        ):
            self.tearDown()
            self.setUp()
            problems = self.plant("cmake/TreadleLayers.cmake", line)
            self.assertTrue([problem for problem in problems if word in problem], place)

    def test_a_folder_without_a_line_is_seen(self):
        (self.root / "libs/pyloop/src/stray").mkdir()
        (self.root / "libs/pyloop/src/stray/stray.c").write_text("int stray;\n")
        self.assert_seen(layers.check(self.root), "stray.c", "no line")

    def test_a_lib_without_a_line_is_seen(self):
        (self.root / "libs/stray/src").mkdir(parents=True)
        (self.root / "libs/stray/src/stray.c").write_text("int stray;\n")
        self.assert_seen(layers.check(self.root), "stray.c", "no line")


if __name__ == "__main__":
    unittest.main()
