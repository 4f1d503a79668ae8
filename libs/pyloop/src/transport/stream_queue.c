/* The bytes that a stream has not sent yet. */
#include "ground/audit.h"
#include "loop/readers.h"
#include "loop/snapshot.h"
#include "transport/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "treadle/alloc.h"

enum { QUEUE_MIN = 4 }; /* entries of the first table */

void tdl__stream_queue_clear(TdlStream *t)
{
    PyObject **queue = t->queue;
    uint32_t head = t->queue_head;
    uint32_t len = t->queue_len;
    t->queue = NULL;
    t->queue_head = t->queue_len = t->queue_cap = 0;
    t->head_sent = t->write_size = 0;
    for (uint32_t i = 0; i < len; i++) {
        Py_DECREF(queue[head + i]);
    }
    tdl_free(queue);
}

/* Keep a reference to data, of which the first `sent` bytes are out already. */
int tdl__stream_queue_push(TdlStream *t, PyObject *data, size_t sent)
{
    if (t->queue_head + t->queue_len == t->queue_cap) {
        if (t->queue_head > t->queue_cap / 2) {
            memmove(t->queue, t->queue + t->queue_head, t->queue_len * sizeof *t->queue);
            t->queue_head = 0;
        } else {
            uint32_t cap = t->queue_cap > 0 ? t->queue_cap * 2 : QUEUE_MIN;
            PyObject **queue = tdl_realloc(t->queue, cap * sizeof *queue);
            if (queue == NULL) {
                PyErr_NoMemory();
                return -1;
            }
            t->queue = queue;
            t->queue_cap = cap;
        }
    }
    if (t->queue_len == 0) {
        t->head_sent = sent;
    }
    t->queue[t->queue_head + t->queue_len++] = Py_NewRef(data);
    t->write_size += (size_t)PyBytes_GET_SIZE(data) - sent;
    return 0;
}

void tdl__stream_queue_sent(TdlStream *t, size_t n)
{
    t->write_size -= n;
    while (t->queue_len > 0) {
        PyObject *head = t->queue[t->queue_head];
        size_t left = (size_t)PyBytes_GET_SIZE(head) - t->head_sent;
        if (n < left) {
            t->head_sent += n;
            return;
        }
        n -= left;
        t->head_sent = 0;
        t->queue_head++;
        t->queue_len--;
        Py_DECREF(head);
    }
    t->queue_head = 0;
}
