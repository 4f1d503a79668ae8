/* The stream transport's object, shared by the files that read, write, close and accept.
 * Thread: the GIL guards it; its items run on the loop's thread.
 * States: OPEN until close or a failure; CLOSING while buffered writes drain; LOST once connection_lost is
 * queued; CLOSED when the descriptor is gone. */
#ifndef TDL_PYLOOP_STREAM_H
#define TDL_PYLOOP_STREAM_H

#include "transport/base.h"

#include <sys/socket.h>

enum tdl_stream_state {
    TDL_STREAM_OPEN,    /* reads and writes */
    TDL_STREAM_CLOSING, /* close() was called; buffered writes go out first */
    TDL_STREAM_LOST,    /* connection_lost is queued; nothing is read or sent any more */
    TDL_STREAM_CLOSED,  /* connection_lost was called, the descriptor is closed */
};

/* Peer or own address as the kernel gave it, turned into Python's form when asked for. */
union tdl_stream_addr {
    struct sockaddr any;
    unsigned char bytes[28]; /* fits sockaddr_in6; other families are turned at once */
};

typedef struct tdl_stream {
    PyObject_HEAD PyObject *extra; /* the slot _extra of asyncio.BaseTransport */
    PyObject *mixin_slots[TDL_MIXIN_SLOTS];
    PyObject *weakrefs;
    PyObject *dict; /* users hang attributes on asyncio's transports */
    TdlLoop *loop;
    PyObject *protocol;
    PyObject *context;      /* of the creator; every callback of the protocol runs in it */
    PyObject *sock;         /* NULL until somebody asks for it, if the descriptor came from accept */
    const int *sock_number; /* where that socket keeps its number, or NULL */
    PyObject *server;
    PyObject
        *empty_waiter; /* what a sendfile waits for: the queue to drain, then the kernel; the loss ends it */
    PyObject *lost_exc;
    struct tdl_watch *watch;
    struct tdl_item read_item, write_item, start_item, lost_item;
    struct tdl_held *held; /* small writes that wait for the step's end, with a reference to this; or NULL */
    PyObject **queue;      /* bytes objects not sent yet, from queue_head on; none while something is held */
    uint32_t queue_head, queue_len, queue_cap;
    uint32_t read_hint; /* size of the next direct read; 0 reads through the loop's buffer */
    size_t head_sent;   /* bytes of the first queued object that are sent */
    size_t write_size;  /* bytes queued and not sent */
    size_t high_water, low_water;
    int fd;
    int family, type, proto;
    uint32_t dropped_writes; /* writes after the connection was lost */
    uint32_t write_turn;     /* number of the turn of the last write(), cut to 32 bits */
    uint32_t write_left;     /* and the items that were left of it then: the two tell the step */
    uint8_t state;           /* enum tdl_stream_state */
    uint8_t use;             /* while unserved: see tdl__streams_count() */
    uint8_t gather;          /* steps whose small writes are held; learnt */
    bool buffered;           /* the protocol is an asyncio.BufferedProtocol */
    bool tls;                /* the protocol is treadle's own for TLS */
    bool lent;               /* the program has the socket, or its number, too: nothing is held */
    bool streams;            /* the protocol is asyncio's of streams, served in C */
    bool unserved;           /* it is that, and not served as yet */
    bool paused;             /* pause_reading() */
    bool eof;                /* write_eof() */
    bool read_eof;           /* the peer will send no more */
    bool started;            /* connection_made was due, reading may begin */
    bool protocol_paused;    /* pause_writing() was called */
    bool sendfile;           /* a sendfile owns the descriptor */
    uint8_t peer_len;
    union tdl_stream_addr peer;
} TdlStream;

#define TDL_STREAM(op) ((TdlStream *)(op))

/* transport.c */
TdlStream *tdl__stream_new(TdlLoop *loop, int fd, PyObject *sock, PyObject *protocol, PyObject *server,
                           PyObject *context);
int tdl__stream_start(TdlStream *t, PyObject *waiter);
int tdl__stream_set_protocol(TdlStream *t, PyObject *protocol);
void tdl__stream_used(TdlStream *t, uint8_t added); /* while unserved; no exception may be set */
PyObject *tdl__stream_replaced(TdlStream *t, PyObject *name);
PyObject *tdl__stream_socket(TdlStream *t);
void tdl__stream_call_handler(TdlStream *t, const char *message, PyObject *exc);

/* stream_read.c */
void tdl__stream_read_run(struct tdl_item *item);
void tdl__stream_start_run(struct tdl_item *item);
void tdl__stream_update_reading(TdlStream *t);

/* stream_write.c */
extern PyMethodDef tdl__stream_write_methods[];
void tdl__stream_write_run(struct tdl_item *item);
void tdl__stream_queue_clear(TdlStream *t);
void tdl__stream_maybe_pause(TdlStream *t);
int tdl__stream_queue_push(TdlStream *t, PyObject *data, size_t sent);
void tdl__stream_send_failed(TdlStream *t, int error);
int tdl__stream_wait_rest(TdlStream *t);

/* stream_hold.c */
bool tdl__stream_hold(TdlStream *t, const void *data, size_t len);
void tdl__stream_lend(TdlStream *t);
int tdl__stream_held_to_queue(TdlStream *t);
void tdl__stream_send_held(TdlStream *t);
void tdl__stream_send_older(TdlStream *t);
void tdl__stream_end_sendfile(TdlStream *t);
ssize_t tdl__stream_send_behind_held(TdlStream *t, const void *data, size_t len);

/* stream_close.c */
extern PyMethodDef tdl__stream_close_methods[];
void tdl__stream_lost_run(struct tdl_item *item);
void tdl__stream_close(TdlStream *t);
void tdl__stream_fatal(TdlStream *t, const char *message);
void tdl__stream_unwatched(TdlStream *t);
void tdl__stream_force_close(TdlStream *t, PyObject *exc);
void tdl__stream_lost_now(TdlStream *t, PyObject *exc);
void tdl__stream_shut(TdlStream *t);

/* The descriptor, or -1 if the user closed the socket object: the number may be another's by now. */
static inline int tdl__stream_fd(const TdlStream *t)
{
    return t->sock_number == NULL || *t->sock_number == t->fd ? t->fd : -1;
}

/* Send what was held for the step's end: whoever calls this is about to do what could tell the difference. */
static inline void tdl__stream_flush(TdlStream *t)
{
    if (t->held != NULL) {
        tdl__stream_send_held(t);
    }
}

/* Leave an exception that ends the run raised and the rest of the turn queued; true if it is one. */
static inline bool tdl__stream_exit_raised(TdlStream *t)
{
    if (!tdl__is_exit_exception()) {
        return false;
    }
    tdl_sched_interrupt(&t->loop->sched);
    return true;
}

/* transport.c and stream_info.c share */
PyObject *tdl__stream_get_extra_info(PyObject *self, PyObject *args, PyObject *kwargs);

/* stream_write.c and stream_lines.c share */
PyObject *tdl__stream_writelines(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
int tdl__stream_check_bytes_like(PyObject *data);
int tdl__stream_write_lost(TdlStream *t);
int tdl__stream_write_refused(TdlStream *t, const char *method);
void tdl__stream_send_queued(TdlStream *t);

/* stream_write.c and stream_sendfile.c share */
PyObject *tdl__stream_make_empty_waiter(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__stream_reset_empty_waiter(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__stream_sendfile_waits_for(PyObject *self, PyObject *future);
void tdl__stream_wake_empty_waiter(TdlStream *t, PyObject *exc);

/* stream_write.c and stream_queue.c share */
void tdl__stream_queue_sent(TdlStream *t, size_t n);

#endif
