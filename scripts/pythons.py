"""Pythons of other versions, processors and C libraries, that headers are taken from and wheels are tested
with.

Debian's packages are laid into folders of their own, with the C library that they want; nothing is installed
and nobody needs to be root. No registry has a CPython for musl, so one is built from Debian's source package.
What is for another processor runs under QEMU's user mode. Each is started by a small script that lies where
the interpreter looks for its own files.
"""
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tarfile

from steps import Failed, made, run

# The suite of Debian that has the Python; those of 3.12 are in none.
SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid", "3.15": "sid"}
# The suite whose other packages (QEMU, musl) are taken.
STABLE = "bookworm"
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
# Of this the source is built for musl, by an interpreter of the same version.
MUSL = "3.11"


def version_of(interpreter):
    """Return the minor version of an interpreter that runs here, or None."""
    try:
        done = subprocess.run([interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                              capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find_interpreter(version):
    """Return the path of a Python of that minor version that runs here, or None."""
    homes = [pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions",
             pathlib.Path.home() / ".local/share/uv/python"]
    candidates = [found for found in (shutil.which(f"python{version}"),) if found]
    candidates += sorted(str(path) for home in homes for path in home.glob(f"*/bin/python{version}"))
    return next((candidate for candidate in candidates if version_of(candidate) == version), None)


class Pythons:
    """A folder with what was fetched and built, each made when it is first asked for."""

    def __init__(self, folder):
        self.folder = folder
        self.here = platform.machine()

    def apt(self, suite, machine, *command, cwd):
        """Run apt-get on the packages of one suite and processor, as on a machine where none is installed."""
        home = self.folder / f"apt-{suite}-{machine}"
        options = [
            f"-o{name}={value}"
            for name, value in (
                ("Dir::State", home),
                ("Dir::State::Lists", home / "lists"),
                ("Dir::State::Status", home / "status"),
                ("Dir::Cache", home / "cache"),
                ("Dir::Etc::SourceList", home / "sources.list"),
                ("Dir::Etc::SourceParts", "/dev/null"),
                ("APT::Architecture", DEBIAN[machine]),
                ("APT::Architectures", DEBIAN[machine]),
                ("APT::Sandbox::User", "root"),
                ("Acquire::Retries", 3),
                ("Acquire::http::Timeout", 60),
                ("Debug::NoLocking", 1),
            )
        ]

        def lay(part):
            for name in ("lists/partial", "cache/archives/partial"):
                (part / name).mkdir(parents=True)
            (part / "status").touch()
            site = run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").split()
            if not site:
                raise Failed("apt has no list of packages yet: run apt-get update once")
            line = f"[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {site[0]} {suite} main\n"
            (part / "sources.list").write_text(f"deb {line}deb-src {line}")

        if not shutil.which("apt-get"):
            raise Failed("no apt-get here to fetch Debian's packages with")
        made(home, lay)
        stamp = home / "lists/.read"
        if not stamp.exists():
            run("apt-get", "-q", *options, "update")
            stamp.touch()
        return run(
            "apt-get", "-q", "-y", *options, *command, cwd=cwd, env={"DEBIAN_FRONTEND": "noninteractive"}
        )

    def packages(self, suite, machine, *names, alone=False):
        """Return a folder with Debian's packages unpacked, and all that they stand on unless they shall be
        alone."""
        def lay(part):
            archives = part / ".archives"
            (archives / "partial").mkdir(parents=True)
            if alone:
                self.apt(suite, machine, "download", *names, cwd=archives)
            else:
                self.apt(suite, machine, f"-oDir::Cache::Archives={archives}", "install", "--download-only",
                         "--no-install-recommends", *names, cwd=archives)
            # Where a tree has one folder for all programs, it has it before they come.
            for name in ("bin", "lib", "lib64", "sbin"):
                (part / "usr" / name).mkdir(parents=True, exist_ok=True)
                (part / name).symlink_to(f"usr/{name}")
            for archive in sorted(archives.glob("*.deb")):
                # As tar, which keeps the links that stand in the way of the older packages' folders.
                with subprocess.Popen(
                    ["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE
                ) as packed:
                    run(
                        "tar",
                        "-x",
                        "--keep-directory-symlink",
                        "--no-same-owner",
                        "-C",
                        part,
                        "-f",
                        "-",
                        stdin=packed.stdout,
                    )
            shutil.rmtree(archives)

        return made(self.folder / "-".join([suite, machine, *names]), lay)

    def headers(self, version):
        """Return the folder of a Python's headers from Debian's packages, or None where no suite has it."""
        if version not in SUITES or not shutil.which("apt-get"):
            return None
        tree = self.packages(SUITES[version], self.here, f"libpython{version}-dev", alone=True)
        return tree / "usr/include" / f"python{version}"

    def starter(self, program, words):
        """Return the path of a script beside a program that starts it by `words`, knowing itself by the
        script's name."""
        script = program.with_name(f"run-{program.name}")
        quoted = " ".join(shlex.quote(str(script if word is None else word)) for word in [*words, program])
        script.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
        script.chmod(0o755)
        return script

    def qemu(self, machine):
        """Return the path of QEMU's program that runs a processor's programs."""
        tree = self.packages(STABLE, self.here, "qemu-user-static", alone=True)
        return tree / f"usr/bin/qemu-{machine}-static"

    def of_debian(self, version, machine):
        """Return what starts Debian's Python of a version and processor, or None where there is none."""
        if version not in SUITES or not shutil.which("apt-get"):
            return None
        tree = self.packages(SUITES[version], machine, f"python{version}", "ca-certificates")
        program = tree / f"usr/bin/python{version}"
        if machine != self.here:
            return self.starter(program, [self.qemu(machine), "-L", tree, "-0", None])
        libraries = tree / f"usr/lib/{machine}-linux-gnu"
        return self.starter(
            program, [tree / "usr/lib64" / LOADERS[machine], "--library-path", libraries, "--argv0", None]
        )

    def musl(self, machine):
        """Return the path of musl as Debian's stable suite has it: its loader, which is the C library too."""
        return self.packages(STABLE, machine, "musl", alone=True) / f"lib/ld-musl-{machine}.so.1"

    def of_musl(self, version, machine, zig):
        """Return what starts a Python that is linked to musl, or None for a version that is not built."""
        if version != MUSL or not shutil.which("apt-get"):
            return None
        builder = find_interpreter(version) or self.of_debian(version, self.here)
        program = self.built_for_musl(version, machine, builder, zig) / "python"
        if machine != self.here:
            return self.starter(
                program, [self.qemu(machine), "-L", self.musl(machine).parents[1], "-0", None]
            )
        return self.starter(program, [self.musl(machine), "--argv0", None])

    def source(self, version):
        """Return the folder of CPython's source as Debian has it, without Debian's changes."""
        def lay(part):
            self.apt(
                SUITES[version],
                self.here,
                "source",
                "--download-only",
                "--tar-only",
                f"python{version}",
                cwd=part,
            )
            [archive] = part.glob("*.orig.tar.*")
            with tarfile.open(archive) as packed:
                packed.extractall(part, filter="data")
            archive.unlink()

        [folder] = made(self.folder / f"source-{version}", lay).iterdir()
        return folder

    def built_for_musl(self, version, machine, builder, zig):
        """Return the folder where CPython was built with zig for musl; it works where it was built."""
        folder = self.folder / f"musl-{version}-{machine}"
        if (folder / ".built").exists():
            return folder
        source = self.source(version)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tools = {}
        for tool, words in (
            ("cc", f"cc -target {machine}-linux-musl -dynamic"),
            ("ar", "ar"),
            ("ranlib", "ranlib"),
        ):
            tools[tool] = folder / f"zig-{tool}"
            # CPython 3.11 asks for the folders of headers so, and zig answers with this machine's.
            asked = 'case "$*" in "-E -v -") exit 0 ;; esac\n' if tool == "cc" else ""
            tools[tool].write_text(f'#!/bin/sh\n{asked}exec {shlex.quote(str(zig))} {words} "$@"\n')
            tools[tool].chmod(0o755)
        # Nothing is found on this machine, so no module that wants a library of others is built. The two
        # names differ, so nothing that is built is run; configure takes the C library's name from the second.
        run(
            source / "configure",
            "-q",
            f"--host={machine}-unknown-linux-musl",
            f"--build={self.here}-linux-musl",
            f"--with-build-python={builder}",
            "--without-ensurepip",
            "--disable-test-modules",
            "--with-pkg-config=no",
            f"CC={tools['cc']}",
            f"AR={tools['ar']}",
            f"RANLIB={tools['ranlib']}",
            f"READELF={shutil.which('readelf')}",
            "CFLAGS=-O1 -g0 -fno-sanitize=undefined -Wno-date-time -w",
            "OPT=-DNDEBUG",
            "LDFLAGS=-s",
            "ac_cv_file__dev_ptmx=yes",
            "ac_cv_file__dev_ptc=no",
            "ac_cv_buggy_getaddrinfo=no",
            # zig's musl has them, the musl that it shall run with not yet.
            "ac_cv_func_preadv2=no",
            "ac_cv_func_pwritev2=no",
            cwd=folder,
        )
        run("make", "-s", f"-j{os.cpu_count()}", "python", "sharedmods", cwd=folder)
        (folder / ".built").touch()
        return folder
