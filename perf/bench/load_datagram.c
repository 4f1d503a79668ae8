/* Datagram sockets of the load generator. */
#include "load.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define LOST_AFTER_NS UINT64_C(200000000)

static void throw_one(struct load_conn *conn)
{
    struct load *load = conn->load;
    conn->seq++;
    const uint8_t *data = load->outgoing + (size_t)conn->seq * load->options.size;
    conn->sent_ns = load_now_ns();
    if (send(conn->fd, data, load->options.size, MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != ENOBUFS) {
        load_fail("send", errno);
    }
}

void load_datagram_open(struct load *load, struct load_conn *conn)
{
    *conn = (struct load_conn){.load = load, .fd = -1};
    conn->fd = socket(load->address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (conn->fd < 0) {
        load_fail("socket", errno);
    }
    if (connect(conn->fd, (struct sockaddr *)&load->address, load->address_length) != 0) {
        load_fail("connect", errno);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, conn->fd, &event) != 0) {
        load_fail("epoll_ctl", errno);
    }
    throw_one(conn);
}

void load_datagram_event(struct load_conn *conn)
{
    struct load *load = conn->load;
    ssize_t n = recv(conn->fd, load->incoming, load->incoming_size, 0);
    if (n < 0) {
        if (errno == EAGAIN) {
            return;
        }
        load_fail("recv", errno);
    }
    if ((size_t)n == load->options.size && load->incoming[0] == conn->seq) {
        load->ops++;
        throw_one(conn);
    }
}

void load_datagram_sweep(struct load *load)
{
    uint64_t now = load_now_ns();
    for (int i = 0; i < load->options.connections; i++) {
        if (now - load->conns[i].sent_ns > LOST_AFTER_NS) {
            load->lost++;
            throw_one(&load->conns[i]);
        }
    }
}
