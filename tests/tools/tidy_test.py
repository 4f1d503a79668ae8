"""Goal: tidy.py sees each fault it knows. Method: a fault in a small tree of its own."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import tidy  # noqa: E402
import wrap  # noqa: E402

GOOD_HEADER = """/* Purpose. */
/* Does it.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
int tdl_thing_do(struct tdl_thing *thing,
                 int how);
"""


class Planted(unittest.TestCase):
    def problems(self, place, text, listed=True):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / place
            path.parent.mkdir(parents=True)
            path.write_text(text)
            lib = pathlib.Path(folder) / "libs/thing/CMakeLists.txt"
            if listed:
                lib.parent.mkdir(parents=True, exist_ok=True)
                lib.write_text("treadle_add_library(thing SOURCES thing.c HEADERS thing.h)\n")
            return tidy.check(pathlib.Path(folder))

    def assert_seen(self, word, place, text):
        problems = self.problems(place, text)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(word, problems[0])
        self.assertTrue(problems[0].startswith(place), problems)

    def assert_clean(self, place, text):
        self.assertEqual(self.problems(place, text), [])

    def test_an_empty_tree_is_no_success(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(tidy.check(pathlib.Path(folder))), 1)

    def test_a_function_of_fifty_lines_passes_and_one_more_does_not(self):
        for style in ("int f(void)\n{{\n{}}}\n", "int f(void) {{\n{}}}\n"):
            self.assert_clean("libs/thing/src/thing.c", style.format("    g();\n" * 50))
            self.assert_seen("51 lines", "libs/thing/src/thing.c", style.format("    g();\n" * 51))

    def test_insides_of_other_projects_stand_in_their_own_files_alone(self):
        for line, place, home in (
            (
                "_Py_NewReference(object);",
                "libs/pyloop/src/loop/handle.c",
                "libs/pyloop/src/ground/cpython.h",
            ),
            ("type->tp_dict;", "libs/pyloop/src/loop/loop.c", "libs/pyloop/src/ground/cpython.c"),
            ("poll->io_watcher.fd = 1;", "libs/pyloop/src/poll/watch.c", "libs/pyloop/src/poll/uvpriv.c"),
            (
                "tasks._enter_task(loop, task)",
                "libs/pyloop/treadle/_loop.py",
                "libs/pyloop/treadle/_asyncio.py",
            ),
        ):
            self.assert_seen("with ", place, line + "\n")
            self.assert_clean(home, line + "\n")

    def test_a_private_name_of_asyncio_stands_in_the_list_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            src = pathlib.Path(folder) / "libs/pyloop/src"
            for name, text in (
                ("ground/asyncio.h", '#define TDL_IT "_its_name"\n'),
                ("loop/a.c", 'int a = find("_its_name");\n'),
                ("loop/own.c", '    {"_its_name", method_of_our_own},\n'),
            ):
                (src / name).parent.mkdir(parents=True, exist_ok=True)
                (src / name).write_text(text)
            problems = tidy.check(pathlib.Path(folder))
            self.assertEqual(len(problems), 1, problems)
            self.assertIn("loop/a.c:1: _its_name", problems[0])

    def test_a_long_file_is_seen(self):
        self.assert_seen("perhaps two rooms", "libs/thing/src/thing.c", "int a;\n" * 451)

    def test_a_branch_or_loop_without_braces_is_seen(self):
        body = "int f(int n)\n{{\n{}    return n;\n}}\n"
        for line in ("if (n)", "for (;;)", "while (n)"):
            self.assert_seen(
                "without braces", "libs/thing/src/thing.c", body.format(f"    {line}\n        n--;\n")
            )
            self.assert_clean("libs/thing/src/thing.c", body.format(f"    {line} {{\n        n--;\n    }}\n"))
        self.assert_seen("else without", "libs/thing/src/thing.c",
                         body.format("    if (n) {\n        n--;\n    } else\n        n++;\n"))
        self.assert_clean(
            "libs/thing/src/thing.c",
            body.format("    if (n) {\n        n--;\n    } else if (g()) {\n        n++;\n    }\n"),
        )
        self.assert_clean(
            "libs/thing/src/thing.c", body.format("    do {\n        n--;\n    } while (n > 0);\n")
        )
        self.assert_seen(
            "if without", "libs/thing/src/thing.c", "#define F(n) \\\n    if (n)  \\\n        g(n)\n"
        )
        self.assert_clean("libs/thing/src/thing.c", "#include <net/if.h>\n#if X\n#else\n#endif\nint n;\n")

    def test_a_static_with_the_prefix_of_the_library_is_seen(self):
        for line in (
            "static int tdl__count(void)\n{\n    return 1;\n}\n",
            "static struct tdl_fop *tdl__first[2];\n",
        ):
            self.assert_seen("no prefix", "libs/thing/src/thing.c", line)
        self.assert_clean("libs/thing/src/thing.c", "static struct tdl_fop *first(struct tdl_fio *f);\n")

    def test_memory_orders_stand_in_one_header_only(self):
        for word in ("memory_order_relaxed", "__ATOMIC_SEQ_CST"):
            text = f"int order = {word};\n"
            self.assert_seen(word, "libs/thing/src/thing.c", text)
            self.assert_seen(word, "cli/thing.c", text)
            self.assert_clean("libs/base/include/treadle/atomic.h", text)

    def test_a_word_in_a_comment_or_string_is_not_a_call(self):
        self.assert_clean("libs/thing/src/thing.c", '/* no malloc(3) here */\nconst char *s = "free(x)";\n')

    def test_calls_with_a_better_replacement_are_seen(self):
        for call in (
            "strcpy(a, b)",
            "sprintf(a, b)",
            "malloc(3)",
            "free(a)",
            "assert(a)",
            "printf(a)",
            "getenv(a)",
            "usleep(3)",
        ):
            self.assert_seen(
                call.split("(")[0], "libs/thing/src/thing.c", f"int f(void)\n{{\n    {call};\n}}\n"
            )
        for call in ("tdl_malloc(3)", "tdl_free(a)", "self.free(a)", "a->free(a)", "_Static_assert(1)"):
            self.assert_clean("libs/thing/src/thing.c", f"int f(void)\n{{\n    {call};\n}}\n")

    def test_a_sleep_in_a_test_is_seen(self):
        self.assert_seen("sleep", "tests/unit/thing/thing_ut.c", "int f(void)\n{\n    sleep(1);\n}\n")

    def test_the_four_lines_stand_over_each_function_of_a_public_header(self):
        place = "libs/thing/include/treadle/thing.h"
        self.assert_clean(place, GOOD_HEADER)
        for word in ("Thread", "Owns", "Errors", "Cost"):
            self.assert_seen("tdl_thing_do", place, GOOD_HEADER.replace(f" * {word}:", f" * {word}s:"))
        swapped = (
            GOOD_HEADER.replace("Owns:  ", "Other: ")
            .replace("Errors:", "Owns:  ")
            .replace("Other: ", "Errors:")
        )
        self.assert_seen("in this order", place, swapped)
        self.assert_seen("tdl_bare", place, GOOD_HEADER + "void tdl_bare(void);\n")
        inline = "static inline struct tdl_thing *tdl_inline(int a)\n{\n    return tdl_thing_of(a);\n}\n"
        self.assert_seen("tdl_inline", place, GOOD_HEADER + inline)

    def test_a_source_that_no_build_file_names_is_seen(self):
        self.assert_seen("names it", "libs/thing/src/other.c", "int a;\n")
        self.assert_clean("libs/thing/src/thing.c", "int a;\n")

    def test_faults_of_text_are_seen(self):
        place = "libs/thing/src/thing.c"
        for word, text in (
            ("a tab", "int\ta;\n"),
            ("blanks", "int a; \n"),
            ("newline", "int a;"),
            ("columns", "int " + "a" * 140 + ";\n"),
            ("unfinished", "/* TO" "DO: more */\n"),
            ("banner", "/* ---------- part ---------- */\n"),
            ("one machine", '"/ro' 'ot/x";\n'),
        ):
            self.assert_seen(word, place, text)

    def test_a_long_line_of_a_page_is_seen_but_not_a_row_or_a_footnote(self):
        words = "word " * 24 + "end\n"
        self.assertEqual(len(words), 124)
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            for place in ("README.md", "docs/page.md"):
                (root / place).write_text(f"| {words}[^note]: {words}{words}")
            self.assertEqual(
                [str(name) for name, number, _ in tidy.check_pages(root) if number == 3],
                ["README.md", "docs/page.md"],
            )
            self.assertEqual(len(list(tidy.check_pages(root))), 2)
            for place in ("README.md", "docs/page.md"):
                (root / place).write_text(wrap.wrapped((root / place).read_text()))
            self.assertEqual(list(tidy.check_pages(root)), [])

    def test_wrapping_a_page_leaves_code_tables_and_short_lines(self):
        kept = f"# {'title ' * 30}\n\n```sh\n{'word ' * 30}\n```\n\n| {'cell ' * 30} |\nshort\nlines\n"
        self.assertEqual(wrap.wrapped(kept), kept)
        self.assertEqual(
            wrap.wrapped("- " + "word " * 24 + "end\n"), "- " + "word " * 22 + "word\n  word end\n"
        )

    def test_names_that_say_nothing_are_seen(self):
        self.assert_seen("no concern", "cli/utils.c", "int a;\n")


if __name__ == "__main__":
    unittest.main()
