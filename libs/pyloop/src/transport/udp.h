/* The datagram transport's object, shared by the files that read, write, close and translate addresses.
 * Thread: the GIL guards it; its items run on the loop's thread.
 * States: OPEN until close or a failure; CLOSING while queued datagrams go out; LOST once connection_lost is
 * queued; CLOSED when the descriptor is gone. */
#ifndef TDL_PYLOOP_UDP_H
#define TDL_PYLOOP_UDP_H

#include "transport/base.h"

#include <sys/socket.h>
#include <sys/un.h>

enum tdl_udp_state {
    TDL_UDP_OPEN,    /* reads and sends */
    TDL_UDP_CLOSING, /* close() was called; queued datagrams go out first */
    TDL_UDP_LOST,    /* connection_lost is queued */
    TDL_UDP_CLOSED,  /* connection_lost was called, the descriptor is closed */
};

enum {
    TDL_UDP_BATCH = 4, /* datagrams in one recvmmsg: as many of 64 KiB as the loop's read buffer holds */
    TDL_UDP_PEERS_MIN = 8,
    TDL_UDP_PEERS_MAX = 512,
    TDL_UDP_HEADER_SIZE = PY_VERSION_HEX >= 0x030D0000 ? 8 : 0, /* what asyncio counts per queued datagram */
};

/* An address as the kernel has it; INET and INET6 in one, longer ones stand in a sockaddr_un. */
struct tdl_udp_addr {
    union {
        struct sockaddr any;
        unsigned char bytes[28];
    };
    uint32_t len;
};

/* An address that datagrams came from, and the tuple that the protocol is given for it. */
struct tdl_udp_peer {
    struct tdl_udp_addr addr;
    PyObject *tuple;
};

struct tdl_datagram {
    PyObject *data;
    PyObject *addr; /* as given to sendto, or as handed to datagram_received */
};

typedef struct tdl_udp {
    PyObject_HEAD PyObject *extra; /* the slot _extra of asyncio.BaseTransport */
    PyObject *mixin_slots[TDL_MIXIN_SLOTS];
    PyObject *weakrefs;
    PyObject *dict;
    TdlLoop *loop;
    PyObject *protocol;
    PyObject *context; /* of the creator; every callback of the protocol runs in it */
    PyObject *sock;
    const int *sock_number; /* where that socket keeps its number, or NULL */
    PyObject *address;      /* the only address that sendto may name, or None */
    PyObject *lost_exc;
    struct tdl_watch *watch;
    struct tdl_item read_item, write_item, start_item, lost_item;
    struct tdl_udp_peer
        *peers; /* by hash of the address; made when the first datagram comes, grown while it misses */
    uint32_t peers_len, peers_missed;
    struct tdl_udp_peer *last; /* the peer of the datagram that was handed over last */
    struct tdl_datagram
        pending[TDL_UDP_BATCH]; /* received, not handed over: the protocol paused in between */
    struct tdl_udp_peer *pending_peer[TDL_UDP_BATCH]; /* where they came from, NULL if not in peers */
    struct tdl_datagram *queue;                       /* not sent yet, from queue_head on */
    uint32_t queue_head, queue_len, queue_cap;
    size_t write_size;
    size_t high_water, low_water;
    int fd;
    int family;
    uint32_t conn_lost;
    uint8_t pending_head, pending_len;
    uint8_t state;  /* enum tdl_udp_state */
    bool connected; /* the socket has a peer: addresses are not passed to the kernel */
    bool paused;    /* pause_reading() */
    bool started;   /* connection_made was due, reading may begin */
    bool protocol_paused;
} TdlUdp;

#define TDL_UDP(op) ((TdlUdp *)(op))

/* udp.c */
void tdl__udp_call_handler(TdlUdp *t, const char *message, PyObject *exc);

/* udp_addr.c */
PyObject *tdl__udp_addr_to_python(const struct sockaddr *addr, size_t len);
bool tdl__udp_addr_parse(int family, PyObject *value, struct tdl_udp_addr *out);

/* udp_read.c */
void tdl__udp_read_run(struct tdl_item *item);
void tdl__udp_start_run(struct tdl_item *item);
void tdl__udp_update_reading(TdlUdp *t);
void tdl__udp_pending_clear(TdlUdp *t);
void tdl__udp_peers_clear(TdlUdp *t);

/* udp_write.c */
extern PyMethodDef tdl__udp_write_methods[];
void tdl__udp_write_run(struct tdl_item *item);
void tdl__udp_queue_clear(TdlUdp *t);
void tdl__udp_maybe_pause(TdlUdp *t);

/* udp_close.c */
extern PyMethodDef tdl__udp_close_methods[];
void tdl__udp_lost_run(struct tdl_item *item);
void tdl__udp_shut(TdlUdp *t);
void tdl__udp_lost_now(TdlUdp *t, PyObject *exc);
void tdl__udp_force_close(TdlUdp *t, PyObject *exc);
void tdl__udp_fatal(TdlUdp *t, const char *message);
void tdl__udp_unwatched(TdlUdp *t);

/* The descriptor, or -1 if the user closed the socket object: the number may be another's by now. */
static inline int tdl__udp_fd(const TdlUdp *t)
{
    return t->sock_number == NULL || *t->sock_number == t->fd ? t->fd : -1;
}

/* Leave an exception that ends the run raised and the rest of the turn queued; true if it is one. */
static inline bool tdl__udp_exit_raised(TdlUdp *t)
{
    if (!tdl__is_exit_exception()) {
        return false;
    }
    tdl_sched_interrupt(&t->loop->sched);
    return true;
}

#endif
