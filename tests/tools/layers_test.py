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
        shutil.copytree(ROOT / "libs", self.root / "libs", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
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

    def test_a_lib_without_a_line_is_seen(self):
        (self.root / "libs/stray/src").mkdir(parents=True)
        (self.root / "libs/stray/src/stray.c").write_text("int stray;\n")
        self.assert_seen(layers.check(self.root), "stray.c", "no line")


if __name__ == "__main__":
    unittest.main()
