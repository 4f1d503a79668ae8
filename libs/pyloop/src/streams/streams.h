/* asyncio's streams without their Python: where a connection is used often, and its protocol, reader and
 * writer are exactly asyncio's own, they get a class of treadle's that derives from theirs and has
 * nothing but some methods in C. All that they know stays in their attributes, so that asyncio's own
 * methods may go on at any moment: they do for whatever is rare (an error, an argument of another type),
 * and from the moment on in which somebody replaced one of them. A method is C where it is called. Who
 * takes it first (`m = reader.read`) gets asyncio's bound method, as `__class__` gives asyncio's class.
 * Thread: the GIL guards everything here. */
#ifndef TDL_PYLOOP_STREAMS_H
#define TDL_PYLOOP_STREAMS_H

#include "ground/state.h"

#include <stdbool.h>
#include <stdint.h>

#define TDL_STREAMS_NAMES(XX)                                                                                \
    TDL_ASYNCIO_STREAMS(XX)                                                                                  \
    XX(cancelled)                                                                                            \
    XX(data_received)                                                                                        \
    XX(is_closing)                                                                                           \
    XX(pause_reading)                                                                                        \
    XX(resume_reading)                                                                                       \
    XX(set_result)                                                                                           \
    XX(write)                                                                                                \
    XX(writelines)

/* One of asyncio's three classes, and the class in C that stands for it. */
struct tdl_streams_kind {
    PyTypeObject *asyncio;                 /* borrowed from the next */
    struct tdl_class *standard, *mixed_in; /* asyncio's class, and one that it takes methods from, or NULL */
    PyTypeObject *type;                    /* NULL until the first object is adopted */
    struct tdl_class own;                  /* what that class consists of */
    unsigned tag;                          /* its version when it was last compared */
    bool in_place;                         /* whether it and asyncio's were as they were shipped */
};

struct tdl_streams {
    struct tdl_streams_kind reader, writer, protocol;
    PyTypeObject *method_type, *op_type;
    PyTypeObject *future_type;                  /* asyncio's in C, which nobody can change */
    PyObject *coroutine_type;                   /* types.CoroutineType */
    PyObject *incomplete_error, *overrun_error; /* asyncio's */
    struct tdl_streams_op *free; /* kept for reuse, linked by `self`; each still owns its type */
    unsigned free_count;
    bool refused; /* the classes could not be made */
#define TDL_NAME_FIELD(name) PyObject *str_##name;
    TDL_STREAMS_NAMES(TDL_NAME_FIELD)
#undef TDL_NAME_FIELD
};

/* What module.c needs. */
int tdl__streams_exec(PyObject *module);
void tdl__streams_free(struct tdl_module_state *st);
int tdl__streams_traverse(struct tdl_streams *s, visitproc visit, void *arg);
void tdl__streams_clear(struct tdl_streams *s);
PyObject *tdl__streams_watch_method(PyObject *module, PyObject *args);

/* How much a connection is used, in what C saves by serving it: a write an eighth of a message that came. To
 * give objects the classes in C, and what such objects cost Python from then on, is as dear as what two
 * messages in C save, so it is done with the third: one request and its answer never pay it. */
enum { TDL_STREAMS_WROTE = 1, TDL_STREAMS_RECEIVED = 8, TDL_STREAMS_ADOPT_AT = 3 * TDL_STREAMS_RECEIVED };

/* Whether the protocol is exactly asyncio's of streams: may be served in C one day. */
bool tdl__streams_is_asyncios(const struct tdl_module_state *st, PyObject *protocol);

/* Whether the protocol has the class in C. */
bool tdl__streams_is_served(const struct tdl_module_state *st, PyObject *protocol);

/* Have a server's writer served in C from its making on, where asyncio's protocol does not keep it, so that
 * nobody finds it later: from Python 3.13 on. For a protocol that was not connected yet. Raises nothing. */
void tdl__streams_watch(TdlLoop *loop, PyObject *protocol);

/* Add to the use of a protocol's connection, 0 at first. When that is enough have the protocol served in C,
 * with its reader and a server's writer, if they are asyncio's own and the loop does not debug; else begin
 * anew. Whether it is served now. Raises nothing; no exception may be set. */
bool tdl__streams_count(TdlLoop *loop, PyObject *protocol, uint8_t *use, uint8_t added);

/* Give the protocol n received bytes, as its data_received() would: 1 taken, 0 not one of ours or not in the
 * plain case, -1 with an exception. */
int tdl__streams_feed(struct tdl_module_state *st, PyObject *protocol, const char *data, Py_ssize_t n);

#endif
