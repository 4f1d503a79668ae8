#!/usr/bin/env python3
"""What of the hardening that release builds have is missing in an ELF file: tools/elf.py FILE...; needs
readelf (binutils)."""
import pathlib
import re
import subprocess
import sys

# What a function that may be branched to begins with: endbr64; bti c or paciasp.
_LANDINGS = {"X86-64": (b"\xf3\x0f\x1e\xfa",), "AArch64": (b"\x5f\x24\x03\xd5", b"\x3f\x23\x03\xd5")}


def read(path, *options):
    return subprocess.run(["readelf", "-W", *options, str(path)], check=True, capture_output=True, text=True,
                          env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/local/bin"}).stdout


def needed(path):
    """Return the names of the libraries that the file asks the loader for."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", read(path, "-d")))


def dynamic_symbols(path, defined):
    """Yield (name with its version, binding) of each dynamic symbol that the file defines or lacks."""
    for line in read(path, "--dyn-syms").splitlines():
        row = line.split()
        if len(row) >= 8 and row[4] in ("GLOBAL", "WEAK") and (row[6] != "UND") == defined:
            yield row[7], row[4]


def symbols(path, defined):
    """Return the names of the dynamic symbols that the file defines or lacks."""
    return {name.split("@")[0] for name, _ in dynamic_symbols(path, defined)}


def wanted(path):
    """Return the names that the file cannot be loaded without, each with its version where it has one:
    name@VERSION."""
    return {name for name, binding in dynamic_symbols(path, defined=False) if binding == "GLOBAL"}


def entries(path):
    """Return the first four bytes of each function that the file defines for others."""
    segments = [
        [int(word, 16) for word in row.split()[1:6]]
        for row in read(path, "-l").splitlines()
        if row.split()[:1] == ["LOAD"]
    ]
    content, found = pathlib.Path(path).read_bytes(), []
    for line in read(path, "--dyn-syms").splitlines():
        row = line.split()
        if len(row) >= 8 and row[3] == "FUNC" and row[6] != "UND":
            address = int(row[1], 16)
            for offset, start, _, size, _ in segments:
                if start <= address < start + size:
                    found.append(content[offset + address - start:][:4])
    return found


def lacks(path, fortified=True, branches=False):
    """Return what is missing, one sentence each; musl has no checked calls to be fortified with."""
    faults = []
    segments, dynamic, undefined = read(path, "-l"), read(path, "-d"), symbols(path, defined=False)
    if "GNU_RELRO" not in segments:
        faults.append("no segment that is read-only after relocation (-z relro)")
    if not re.search(r"BIND_NOW|FLAGS_1.*\bNOW\b", dynamic):
        faults.append("calls are bound when first made, which leaves their table writable (-z now)")
    if re.search(r"GNU_STACK.* RWE ", segments):
        faults.append("the stack is executable")
    if re.search(r"LOAD .* RWE ", segments):
        faults.append("a segment is writable and executable")
    if "(TEXTREL)" in dynamic:
        faults.append("code is written to by relocations (not position-independent)")
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        faults.append("it looks for libraries in a folder of the machine that built it")
    if "__stack_chk_fail" not in undefined:
        faults.append("no stack protector (-fstack-protector-strong)")
    if fortified and not any(name.endswith("_chk") and name.startswith("__") for name in undefined):
        faults.append("no checked call of the C library (_FORTIFY_SOURCE)")
    machine = re.search(r"Machine:.*?(X86-64|AArch64)", read(path, "-h"))
    # The file's own mark is left out by some linkers, and where the system's start code has none.
    if branches and machine and any(entry not in _LANDINGS[machine.group(1)] for entry in entries(path)):
        faults.append(
            "functions do not mark that they may be branched to (-fcf-protection, -mbranch-protection)"
        )
    return faults


def main():
    status = 0
    for path in sys.argv[1:]:
        for fault in lacks(path):
            print(f"{path}: {fault}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
