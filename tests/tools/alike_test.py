"""Goal: alike.py sees a piece that stands in two files, under other names too. Method: small trees of its
own."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import alike  # noqa: E402

PIECE = """static int {a}(struct thing *t)
{{
    int {b} = first(t);
    if ({b} < 0) {{
        return {b};
    }}
    t->count += {n};
    other(t, {b});
    return last(t) + {n};
}}
"""


class Planted(unittest.TestCase):
    def problems(self, one, two):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "libs/ring/src").mkdir(parents=True)
            (root / "libs/ring/src/one.c").write_text(one)
            (root / "libs/ring/src/two.c").write_text(two)
            return alike.check(root)

    def test_a_piece_with_other_names_and_numbers_is_seen(self):
        problems = self.problems(
            PIECE.format(a="f", b="code", n=1), "int x;\n" + PIECE.format(a="g", b="rc", n=22)
        )
        self.assertEqual(len(problems), 2, problems)
        self.assertTrue(problems[0].startswith("libs/ring/src/one.c:1: as libs/ring/src/two.c:2"), problems)

    def test_five_lines_and_another_pass(self):
        piece = PIECE.format(a="f", b="code", n=1)
        self.assertEqual(
            self.problems(piece, piece.replace("t->count += 1;", "while (more(t)) {\n    }")), []
        )

    def test_a_piece_that_one_file_has_twice_is_its_own_matter(self):
        piece = PIECE.format(a="f", b="code", n=1)
        self.assertEqual(self.problems(piece + "\n" + piece, "int x;\n"), [])

    def test_comments_and_tables_do_not_count(self):
        rows = "static const struct row rows[] = {\n" + '    {"name", 1},\n    /* why */\n' * 9 + "};\n"
        self.assertEqual(self.problems(rows, rows), [])


if __name__ == "__main__":
    unittest.main()
