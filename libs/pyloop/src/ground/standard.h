/* Whether what treadle's C goes around is still what Python brought. Agents, guards of tests and fake clocks
 * replace methods of asyncio, of sockets and of thread pools; asyncio calls what it finds, so each short cut
 * asks here before it is taken, and where the answer is no, asyncio's own code runs. The question costs one
 * comparison while nothing changes: a type gets another version tag with each change of it or of its bases.
 * A type that has used up its tags (1000 from Python 3.13 on) is compared attribute by attribute each time.
 * Thread: the GIL guards everything here. */
#ifndef TDL_PYLOOP_STANDARD_H
#define TDL_PYLOOP_STANDARD_H

#include "ground/cpython.h"

#include <stdbool.h>

/* Of a function that is called only where something was replaced: the compiler keeps it out of the way. */
#define TDL_RARE __attribute__((cold, noinline))

/* A class of the standard library, and what it consisted of when it was found to be as it was shipped. */
struct tdl_class {
    PyTypeObject *type; /* NULL: it was replaced before treadle was imported */
    PyObject *shipped;  /* its attributes, copied */
    unsigned tag;       /* its version when it was last compared */
    bool in_place;      /* the outcome */
};

/* A function whose code may be replaced in place, which changes no version. */
struct tdl_function {
    PyObject *function, *code;
};

struct tdl_standard {
    struct tdl_class socket, pool, handle, timer_handle;
    struct tdl_class stream_reader, stream_writer, stream_protocol, stream_flow; /* of asyncio.streams */
    struct tdl_function submit, adjust, run_in_executor;
    PyObject *str_socket;
    PyObject *base_events_dict; /* where asyncio finds the module socket */
    PyObject *socket_module;
    PyObject *raw_socket_type; /* _socket.socket */
    PyObject *work_queue_type; /* of a pool's queue */
    PyObject
        *transport_shipped; /* {name: attribute} of asyncio's transports that one in C stands in front of */
    unsigned transport_tag; /* of the class of transports in C while they are in place */
    PyObject *loop_class;   /* treadle.Loop */
    PyObject *loop_own; /* {name: attribute} of treadle.Loop, for what stands in front of asyncio's or goes
                           around it */
    PyObject *loop_shipped; /* the same names: a tuple of what asyncio's classes have, None if one was
                               replaced before */
    PyObject *loop_asyncio; /* asyncio's loop class */
};

int tdl__standard_init(struct tdl_standard *s);
int tdl__standard_traverse(struct tdl_standard *s, visitproc visit, void *arg);
void tdl__standard_clear(struct tdl_standard *s);

/* Learn a class of treadle's own: it is in place while it is what it is now. */
int tdl__class_watch(struct tdl_class *c, PyTypeObject *type);
TDL_RARE bool tdl__class_compare(struct tdl_class *c);

static inline bool tdl__class_in_place(struct tdl_class *c)
{
    return c->type != NULL && tdl__type_tag(c->type) == c->tag ? c->in_place : tdl__class_compare(c);
}

static inline bool tdl__code_in_place(const struct tdl_function *f)
{
    return f->code != NULL && PyFunction_GET_CODE(f->function) == f->code;
}

TDL_RARE bool tdl__transports_compare(struct tdl_standard *s, PyTypeObject *type, PyObject *asyncios);
bool tdl__sockets_in_place(struct tdl_standard *s);
bool tdl__socket_is_plain(struct tdl_standard *s, PyObject *sock);

#endif
