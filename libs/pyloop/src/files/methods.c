/* The methods of a file context, by name: what makes operations (prepare.c) and what drives them
 * (context.c). */
#include "files/files.h"

#define TDL_FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

PyMethodDef tdl__files_context_methods[] = {
    {"_ready", tdl__files_ready, METH_NOARGS, PyDoc_STR("_ready($self, /)\n--\n\nThe loop saw results.")},
    {"_step", tdl__files_step, METH_NOARGS,
     PyDoc_STR("_step($self, /)\n--\n\nReap, wake and flush; the loop calls it.")},
    {"close", tdl__files_context_close, METH_NOARGS,
     PyDoc_STR("close($self, /)\n--\n\nCancel what is in flight, fail those who wait, free the engine. "
               "Idempotent.")},
    {"register", tdl__files_register, METH_O,
     PyDoc_STR("register($self, memory, /)\n--\n\nHave the kernel pin memory until close, for cheaper direct "
               "transfers in "
               "it. False where it cannot.")},
    {"submit", tdl__files_context_submit, METH_O,
     PyDoc_STR("submit($self, op, /)\n--\n\nStage a raw operation.")},
    {"flush", tdl__files_flush, METH_NOARGS, PyDoc_STR("flush($self, /)\n--\n\nSubmit what is staged.")},
    {"reap", tdl__files_reap, METH_NOARGS,
     PyDoc_STR("reap($self, /)\n--\n\nReturn the finished operations that were submitted by hand, and let "
               "tasks that await others go on.")},
    {"cancel", tdl__files_context_cancel, METH_O,
     PyDoc_STR("cancel($self, op, /)\n--\n\nAsk for an operation to be dropped.")},
    {"wait", tdl__files_wait, METH_O,
     PyDoc_STR(
         "wait($self, timeout, /)\n--\n\nWait in seconds for something to reap; negative is for ever.")},
    {"fileno", tdl__files_fileno, METH_NOARGS,
     PyDoc_STR("fileno($self, /)\n--\n\nReturn the descriptor that shows results.")},
    {"_uses", tdl__files_uses, METH_O,
     PyDoc_STR(
         "_uses($self, fd, /)\n--\n\nWhether an operation that was begun is not done with a descriptor.")},
    {"caps", tdl__files_caps, METH_NOARGS,
     PyDoc_STR("caps($self, /)\n--\n\nReturn what is really in force, and counts.")},
    {"read", TDL_FAST(tdl__files_prepare_read),
     PyDoc_STR("read($self, fd, size, offset=None, /)\n--\n\nRead into new bytes.")},
    {"readinto", TDL_FAST(tdl__files_readinto),
     PyDoc_STR("readinto($self, fd, buffer, offset=None, /)\n--\n\nRead into a buffer of the caller.")},
    {"readv", TDL_FAST(tdl__files_readv),
     PyDoc_STR("readv($self, fd, buffers, offset=None, /)\n--\n\nRead into several buffers.")},
    {"write", TDL_FAST(tdl__files_write),
     PyDoc_STR("write($self, fd, data, offset=None, /)\n--\n\nWrite a buffer.")},
    {"writev", TDL_FAST(tdl__files_writev),
     PyDoc_STR("writev($self, fd, buffers, offset=None, /)\n--\n\nWrite several buffers.")},
    {"fsync", tdl__files_fsync, METH_O,
     PyDoc_STR("fsync($self, fd, /)\n--\n\nBring data and metadata to the disk.")},
    {"fdatasync", tdl__files_fdatasync, METH_O,
     PyDoc_STR("fdatasync($self, fd, /)\n--\n\nBring data to the disk.")},
    {"open", TDL_FAST(tdl__files_open),
     PyDoc_STR("open($self, path, flags, mode=0o666, /)\n--\n\nOpen a file; gives a descriptor.")},
    {"close_fd", tdl__files_close_fd, METH_O, PyDoc_STR("close_fd($self, fd, /)\n--\n\nClose a descriptor.")},
    {"stat", TDL_FAST(tdl__files_stat),
     PyDoc_STR("stat($self, path_or_fd, flags=0, /)\n--\n\nGive an os.stat_result.")},
    {"truncate", TDL_FAST(tdl__files_truncate),
     PyDoc_STR("truncate($self, fd, size, /)\n--\n\nSet the size.")},
    {"_file_open", TDL_FAST(tdl__files_file_open), NULL},
    {"_file_truncate", TDL_FAST(tdl__files_file_truncate), NULL},
    {"fallocate", TDL_FAST(tdl__files_fallocate),
     PyDoc_STR("fallocate($self, fd, mode, offset, size, /)\n--\n\nReserve space.")},
    {"rename", TDL_FAST(tdl__files_rename),
     PyDoc_STR("rename($self, source, target, flags=0, /)\n--\n\nMove a name.")},
    {"unlink", TDL_FAST(tdl__files_unlink),
     PyDoc_STR("unlink($self, path, flags=0, /)\n--\n\nRemove a name.")},
    {"mkdir", TDL_FAST(tdl__files_mkdir),
     PyDoc_STR("mkdir($self, path, mode=0o777, /)\n--\n\nMake a folder.")},
    {"splice", TDL_FAST(tdl__files_splice),
     PyDoc_STR("splice($self, source, source_offset, target, target_offset, size, /)\n--\n\nMove bytes "
               "through a pipe.")},
    {"copy", TDL_FAST(tdl__files_copy),
     PyDoc_STR(
         "copy($self, source, source_offset, target, target_offset, size, /)\n--\n\nCopy between files.")},
    {"read_file", TDL_FAST(tdl__files_read_file),
     PyDoc_STR("read_file($self, path, limit, /)\n--\n\nOpen, read up to limit, close.")},
    {NULL, NULL, 0, NULL},
};
