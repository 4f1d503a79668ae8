/* Files for asyncio: contexts that stage operations on libs/fileio, and operations that are awaited without a
 * future. Thread: everything is guarded by the GIL and belongs to the loop's thread; a raw context may be
 * used from several threads, one at a time. */
#ifndef TDL_PYLOOP_FILES_H
#define TDL_PYLOOP_FILES_H

#include "ground/compat.h"

#include <stdbool.h>
#include <sys/stat.h>
#ifndef STATX_TYPE
#include <linux/stat.h> /* musl before 1.2.5 */
#endif

#include "treadle/fileio.h"

#define TDL_FILES_OPS_KEPT 256

struct tdl_part;
typedef struct files_state FilesState;
typedef struct files_context FileContext;
typedef struct files_op FileOp;

/* What the types share; an object in the module's dict, so that the collector sees what it holds. */
struct files_state {
    PyObject_HEAD PyTypeObject *op_type;
    PyTypeObject *context_type;
    PyObject *get_running_loop;
    PyObject *cancelled_error;
    PyObject *invalid_state_error;
    PyObject *future_type;
    PyObject *stat_result;
    PyObject *str_call_soon;
    PyObject *str_set_result;
    PyObject *str_add_reader;
    PyObject *str_remove_reader;
    PyObject *str_call_exception_handler;
    PyObject *context_kwname; /* ("context",) */
    PyObject *empty_bytes;
    PyCFunction task_wakeup; /* of asyncio's tasks, once it was seen, and the last function that is none */
    PyCFunction no_wakeup;
    FileOp *kept; /* freed operations for reuse, linked by their context field */
    unsigned kept_count;
};

struct files_context {
    PyObject_HEAD FilesState *state;
    PyObject *weakrefs;
    PyObject *loop;       /* set by the first operation that had to wait */
    PyObject *make_error; /* called with errno for the exception to raise; NULL for OSError */
    PyObject *on_ready;   /* what the loop calls when the descriptor shows results */
    PyObject *on_step;    /* this context's bound step method, while it belongs to a loop */
    PyObject *done;       /* a finished future of that loop, for tasks that only ask for the outcome */
    struct tdl_fio fio;
    Py_buffer pinned;         /* memory that the kernel holds until close; obj is NULL without */
    struct tdl_node held;     /* the operations that the kernel or the stage holds; each is one reference */
    FileContext *next_staged; /* in the list of a treadle loop that flushes it before its poll */
    bool native;              /* the loop is treadle's */
    uint64_t stepped_turn;    /* of that loop, in which a scheduled step ran last */
    int reader_fd;            /* registered with the loop; -1 when not */
    int closing_fd;           /* for those who wait(): readable once it closes; -1 before anybody did */
    unsigned waiters;
    bool soon;   /* a step is scheduled by call_soon */
    bool listed; /* stands in the loop's list of contexts to flush */
    bool dispatching;
    unsigned long step_thread; /* while dispatching: the thread of the step */
    bool closed;
    bool lost; /* somebody closed its engine's descriptors: the kernel may keep what came back with EBADF */
};

enum files_phase {
    FILES_NEW,     /* nothing happened yet */
    FILES_PENDING, /* the context holds it */
    FILES_READY,   /* has its value or error, nobody took it */
    FILES_TAKEN,   /* awaited to its end */
};

/* What the result is made of. */
enum files_result {
    FILES_BYTES, /* payload, cut to the bytes read */
    FILES_COUNT,
    FILES_NOTHING,
    FILES_DESCRIPTOR,
    FILES_STAT,
};

struct files_op {
    PyObject_HEAD FileContext *context;
    struct tdl_fop fop;
    struct tdl_node held;
    PyObject *payload;  /* the buffer of a read, or what the buffers belong to */
    PyObject *path;     /* the encoded path or paths */
    PyObject *filename; /* for the error */
    PyObject *filename2;
    PyObject *value;    /* what the await gives, once READY */
    PyObject *callback; /* who waits: a task's wake-up, nearly always the only one */
    PyObject *callback_context;
    PyObject *more;   /* list of (callback, context) beyond the first */
    PyObject *owner;  /* of a raw operation: the object that is told */
    Py_buffer view;   /* of a write or readinto; view.obj is NULL without one */
    Py_buffer *views; /* of vectors */
    struct iovec *vector;
    struct statx *statx;
    unsigned view_count;
    uint8_t phase;
    uint8_t result;
    bool blocking; /* what asyncio's tasks look at */
    bool cancelled;
    bool lingers; /* cancelled, and told when nobody looks its descriptors up any more */
    bool seen;    /* somebody was given the result */
    bool kept;    /* outlives who awaits it: a cancel lets them go on alone, and it may be awaited again */
    bool raw;     /* submitted by hand, for reap() to return */
    bool unmade;  /* there was no memory for its bytes */
};

#define TDL_FILE_OP(o) ((FileOp *)(o))
#define TDL_FILE_CONTEXT(o) ((FileContext *)(o))

/* files.c */
int tdl_files_exec(PyObject *module);
FilesState *tdl__files_state(PyTypeObject *type);
PyObject *tdl__files_running_loop(FilesState *state);

/* op.c */
extern PyType_Spec tdl__files_op_spec;
FileOp *tdl__files_op_new(FileContext *context, enum files_result result);
PyObject *tdl__files_op_prepared(FileOp *op);
void tdl__files_ops_free(FilesState *state);
int tdl__files_provide(struct tdl_fop *fop);
bool tdl__files_op_is_lost(const FileOp *op);
void tdl__files_op_settle(FileOp *op);
void tdl__files_raise(FileOp *op, int64_t code);

/* wake.c */
int tdl__files_op_wake(FileOp *op, bool directly);

/* context.c */
extern const struct tdl_part tdl__files_part;
extern PyType_Spec tdl__files_context_spec;
int tdl__files_start(FileContext *context, FileOp *op);
int tdl__files_submit(FileContext *context, FileOp *op);
int tdl__files_schedule(FileContext *context);

/* prepare.c */
bool tdl__files_fd_from(PyObject *arg, int *fd);
/* methods.c, and the methods that it names */
extern PyMethodDef tdl__files_context_methods[];
PyObject *tdl__files_caps(PyObject *self, PyObject *arg);
PyObject *tdl__files_close_fd(PyObject *self, PyObject *arg);
PyObject *tdl__files_context_cancel(PyObject *self, PyObject *arg);
PyObject *tdl__files_context_close(PyObject *self, PyObject *arg);
PyObject *tdl__files_context_submit(PyObject *self, PyObject *arg);
PyObject *tdl__files_copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_fallocate(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_fdatasync(PyObject *self, PyObject *arg);
PyObject *tdl__files_file_open(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_file_truncate(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_fileno(PyObject *self, PyObject *arg);
PyObject *tdl__files_flush(PyObject *self, PyObject *arg);
PyObject *tdl__files_fsync(PyObject *self, PyObject *arg);
PyObject *tdl__files_mkdir(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_open(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_prepare_read(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_read_file(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_readinto(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_readv(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_ready(PyObject *self, PyObject *arg);
PyObject *tdl__files_reap(PyObject *self, PyObject *arg);
PyObject *tdl__files_register(PyObject *self, PyObject *arg);
PyObject *tdl__files_rename(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_splice(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_stat(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_step(PyObject *self, PyObject *arg);
PyObject *tdl__files_truncate(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_unlink(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_uses(PyObject *self, PyObject *arg);
PyObject *tdl__files_wait(PyObject *self, PyObject *arg);
PyObject *tdl__files_write(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *tdl__files_writev(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

/* op.c and result.c share */
PyObject *tdl__files_op_bytes_value(FileOp *op);
PyObject *tdl__files_op_take(FileOp *op);
void tdl__files_op_release_buffers(FileOp *op);

/* op.c and await.c share */
PyObject *tdl__files_op_await(PyObject *self);
PyObject *tdl__files_op_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *tdl__files_op_close(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__files_op_iternext(PyObject *self);
PyObject *tdl__files_op_keep(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__files_op_send(PyObject *self, PyObject *value);
PyObject *tdl__files_op_throw(PyObject *self, PyObject *args);
void tdl__files_abandon(FileOp *op);

/* op.c and future.c share */
PyObject *tdl__files_op_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                          PyObject *kwnames);
PyObject *tdl__files_op_cancelled(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__files_op_done(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__files_op_exception(PyObject *self, PyObject *ignored);
PyObject *tdl__files_op_get_loop(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__files_op_remove_done_callback(PyObject *self, PyObject *callback);
PyObject *tdl__files_op_result(PyObject *self, PyObject *Py_UNUSED(ignored));

/* context.c and bind.c share */
int tdl__files_bind_loop(FileContext *c);
void tdl__files_unbind_loop(FileContext *c);

/* context.c and by_hand.c share */
FileOp *tdl__files_give_back(struct tdl_queue *finished);
double tdl__files_seconds_now(void);
extern const char *const tdl__files_mode_names[];
int tdl__files_check_open(const FileContext *c);
void tdl__files_shut_waiters(FileContext *c);

/* prepare.c and prepare_paths.c share */
FileOp *tdl__files_on_fd(PyObject *self, PyObject *arg, int *fd);
PyObject *tdl__files_encoded_path(PyObject *path, PyObject **text);
PyObject *tdl__files_unmade(FileOp *op);
PyObject *tdl__files_with_bytes(FileOp *op, Py_ssize_t size);
bool tdl__files_counted(const char *name, Py_ssize_t nargs, Py_ssize_t low, Py_ssize_t high);
bool tdl__files_int_from(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t index, int preset, int *value);
bool tdl__files_size_from(PyObject *arg, Py_ssize_t *size);
const char *tdl__files_path_into(FileOp *op, PyObject *path);

#endif
