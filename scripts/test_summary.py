"""Sums JUnit reports into the closing line of scripts/test: python test_summary.py BROKEN_STEPS REPORT..."""
import sys
import xml.etree.ElementTree as ElementTree


def count(path):
    """Returns (passed, failed) of one report; a skipped or disabled case is neither."""
    passed = failed = 0
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"} or case.get("status") == "fail":
            failed += 1
            print(f"failed: {case.get('classname') or ''} {case.get('name')}")
        elif "skipped" not in kinds and case.get("status") not in ("notrun", "disabled"):
            passed += 1
    return passed, failed


def main(broken, paths):
    passed, failed = 0, int(broken)
    for path in paths:
        if "*" in path:
            continue
        more_passed, more_failed = count(path)
        passed += more_passed
        failed += more_failed
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
