"""Goal: layout.py sees a file that clang-format would change. Method: small trees of its own."""
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import layout  # noqa: E402

FORMATTER = layout.find_formatter()


@unittest.skipIf(FORMATTER is None, f"no clang-format {layout.VERSION} here")
class Planted(unittest.TestCase):
    def problems(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            shutil.copy(ROOT / ".clang-format", root)
            place = root / "libs/thing/src/thing.c"
            place.parent.mkdir(parents=True)
            place.write_text(text)
            return layout.check(root, FORMATTER)

    def test_an_empty_tree_is_no_success(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(layout.check(pathlib.Path(folder).resolve(), FORMATTER)), 1)

    def test_a_file_in_order_passes(self):
        self.assertEqual(self.problems("int thing(void)\n{\n    return 1;\n}\n"), [])

    def test_a_line_that_is_off_is_seen(self):
        self.assertEqual(self.problems("int thing(void) {\n  return 1;\n}\n"),
                         ["libs/thing/src/thing.c: run clang-format -i on it"])

    def test_includes_out_of_order_are_seen(self):
        self.assertEqual(
            len(self.problems('#include "treadle/status.h"\n#include <errno.h>\n\nextern int thing;\n')), 1
        )


if __name__ == "__main__":
    unittest.main()
