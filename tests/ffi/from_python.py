"""Drives the shared library with ctypes alone, as any language without a C compiler would: from_python.py
LIBRARY VERSION.

Structs are memory of the size the library says, fields are where it says.
"""
import ctypes
import os
import sys
import tempfile
import threading

NO_LIMIT = (1 << 64) - 1
lib = ctypes.CDLL(sys.argv[1])
lib.tdl_version.restype = ctypes.c_char_p
for name in ("tdl_ffi_size", "tdl_ffi_align", "tdl_ffi_offset"):
    getattr(lib, name).restype = ctypes.c_size_t
lib.tdl_queue_pop.restype = lib.tdl_inbox_take.restype = ctypes.c_void_p
lib.tdl_inbox_close.restype = lib.tdl_fop_of.restype = lib.tdl_item_of.restype = ctypes.c_void_p
lib.tdl_fop_of.argtypes = lib.tdl_item_of.argtypes = [ctypes.c_void_p]
lib.tdl_sched_run.restype = ctypes.c_size_t
lib.tdl_queue_is_empty.restype = lib.tdl_inbox_is_empty.restype = ctypes.c_bool


def embed(name):
    """Memory for a struct, in zeros."""
    size, align = lib.tdl_ffi_size(name.encode()), lib.tdl_ffi_align(name.encode())
    assert size > 0 and align in (4, 8, 16) and size % align == 0, (name, size, align)
    return (ctypes.c_uint64 * -(-size // 8))()


def field(struct, name, kind):
    offset = lib.tdl_ffi_offset(name.encode())
    assert offset + ctypes.sizeof(kind) <= ctypes.sizeof(struct), name
    return kind.from_buffer(struct, offset)


def check_answers():
    assert lib.tdl_version().decode() == sys.argv[2]
    for unknown in (b"nosuch", b"", None):
        assert lib.tdl_ffi_size(unknown) == lib.tdl_ffi_align(unknown) == 0
        assert lib.tdl_ffi_offset(unknown) == ctypes.c_size_t(-1).value


def check_wake_and_core():
    wake, inbox, sched, item = embed("tdl_wake"), embed("tdl_inbox"), embed("tdl_sched"), embed("tdl_item")
    ran = []
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ran.append)
    lib.tdl_sched_init(sched)
    lib.tdl_item_init(item, run)
    assert lib.tdl_wake_open(wake, None) == 0
    lib.tdl_inbox_init(inbox, wake, None)
    thread = threading.Thread(target=lib.tdl_inbox_post, args=(inbox, item))
    lib.tdl_wake_park_begin(wake)
    thread.start()
    while lib.tdl_inbox_is_empty(inbox):
        lib.tdl_wake_wait(wake, ctypes.c_uint64(NO_LIMIT))
    lib.tdl_wake_park_end(wake)
    thread.join()
    lib.tdl_sched_merge(sched, ctypes.c_void_p(lib.tdl_inbox_take(inbox)))
    lib.tdl_sched_freeze(sched)
    assert lib.tdl_sched_run(sched) == 1 and ran == [ctypes.addressof(item)]
    assert lib.tdl_inbox_close(inbox) is None
    lib.tdl_wake_close(wake)


def check_files():
    fio, ops, finished = embed("tdl_fio"), [embed("tdl_fop") for _ in range(8)], embed("tdl_queue")
    buffers = [ctypes.create_string_buffer(4) for _ in ops]
    with tempfile.TemporaryFile() as file:
        file.write(b"".join(b"%04d" % i for i in range(len(ops))))
        file.flush()
        assert lib.tdl_fio_open(fio, None) == 0
        for i, op in enumerate(ops):
            lib.tdl_fop_read(op, file.fileno(), buffers[i], ctypes.c_size_t(4), ctypes.c_uint64(4 * i))
            field(op, "tdl_fop.user", ctypes.c_void_p).value = i + 1
            assert lib.tdl_fio_stage(fio, op) == 0
        lib.tdl_fio_step(fio)
        lib.tdl_queue_init(finished)
        assert lib.tdl_fio_drain(fio, finished) == 0
        seen = set()
        while not lib.tdl_queue_is_empty(finished):
            at = lib.tdl_fop_of(lib.tdl_queue_pop(finished))
            op = next(op for op in ops if ctypes.addressof(op) == at)
            assert field(op, "tdl_fop.result", ctypes.c_int64).value == 4
            seen.add(field(op, "tdl_fop.user", ctypes.c_void_p).value)
        assert seen == set(range(1, len(ops) + 1))
        assert [buffer.raw for buffer in buffers] == [b"%04d" % i for i in range(len(ops))]
        assert lib.tdl_fio_close(fio, None) == 0


before = len(os.listdir("/proc/self/fd"))
check_answers()
check_wake_and_core()
check_files()
assert len(os.listdir("/proc/self/fd")) == before
print("all of it by name")
