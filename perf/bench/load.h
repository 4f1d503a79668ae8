/* The load generator's shared state: many sockets driven from one thread by epoll, the same for every event
 * loop measured. */
#ifndef TREADLE_LOAD_H
#define TREADLE_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum load_mode { LOAD_ECHO, LOAD_CHURN, LOAD_IDLE, LOAD_UDP };

struct load_tls;

struct load_options {
    enum load_mode mode;
    const char *host;
    const char *unix_path;
    int port;
    int connections;
    size_t size;
    int samples;
    int warmup;
    double seconds;
    int pid; /* the server's process, whose CPU time is what counts; 0 for none */
    bool tls;
};

struct load;

struct load_conn {
    struct load *load;
    int fd;
    bool connecting;
    bool wants_write; /* EPOLLOUT is registered */
    uint8_t seq;      /* the byte this message consists of */
    size_t sent;
    size_t got;
    uint64_t sent_ns; /* when the last datagram left, for the ones that get lost */
    void *tls;
};

struct load {
    struct load_options options;
    struct sockaddr_storage address;
    socklen_t address_length;
    int epoll;
    struct load_conn *conns;
    uint8_t *outgoing;
    uint8_t *incoming;
    size_t incoming_size;
    uint64_t ops;
    uint64_t lost;
    uint32_t opened;
    struct load_tls *tls;
};

uint64_t load_now_ns(void);
_Noreturn void load_fail(const char *what, int error);

/* load_stream.c: connections that echo, that come and go, or that stay silent. */
void load_stream_open(struct load *load, struct load_conn *conn);
void load_stream_event(struct load_conn *conn, uint32_t events);

/* load_datagram.c: one datagram in flight per socket; a lost one is sent again. */
void load_datagram_open(struct load *load, struct load_conn *conn);
void load_datagram_event(struct load_conn *conn);
void load_datagram_sweep(struct load *load);

/* load_tls.c: send and recv return bytes, 0 for the end of the stream, or a negative errno. */
struct load_tls *load_tls_new(void);
void load_tls_delete(struct load_tls *tls);
void load_tls_free(struct load_conn *conn);
void load_tls_connect(struct load *load, struct load_conn *conn);
ptrdiff_t load_tls_send(struct load_conn *conn, const void *data, size_t size);
ptrdiff_t load_tls_recv(struct load_conn *conn, void *data, size_t size);

#endif
