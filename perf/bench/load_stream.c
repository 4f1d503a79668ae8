/* Stream sockets of the load generator: write one message, read it back, count, again. */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static ptrdiff_t stream_send(struct load_conn *conn, const void *data, size_t size)
{
    if (conn->tls != NULL) {
        return load_tls_send(conn, data, size);
    }
    ssize_t n = send(conn->fd, data, size, MSG_NOSIGNAL);
    return n < 0 ? -errno : n;
}

static ptrdiff_t stream_recv(struct load_conn *conn, void *data, size_t size)
{
    if (conn->tls != NULL) {
        return load_tls_recv(conn, data, size);
    }
    ssize_t n = recv(conn->fd, data, size, 0);
    return n < 0 ? -errno : n;
}

static void watch_write(struct load_conn *conn, bool wanted)
{
    if (conn->wants_write == wanted) {
        return;
    }
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0U), .data.ptr = conn};
    if (epoll_ctl(conn->load->epoll, EPOLL_CTL_MOD, conn->fd, &event) != 0) {
        load_fail("epoll_ctl", errno);
    }
    conn->wants_write = wanted;
}

static void push(struct load_conn *conn)
{
    struct load *load = conn->load;
    size_t size = load->options.size;
    if (conn->sent == 0) {
        conn->seq++;
    }
    const uint8_t *data = load->outgoing + (size_t)conn->seq * size;
    while (conn->sent < size) {
        ptrdiff_t n = stream_send(conn, data + conn->sent, size - conn->sent);
        if (n == -EAGAIN) {
            break;
        }
        if (n <= 0) {
            load_fail("send", (int)-n);
        }
        conn->sent += (size_t)n;
    }
    watch_write(conn, conn->sent < size);
}

/* Connections that come and go take many source addresses, or the ports in TIME_WAIT would run out. */
static void bind_source(struct load *load, struct load_conn *conn)
{
    struct sockaddr_in source = {.sin_family = AF_INET};
    int on = 1;
    uint32_t host = 0x7F000000U + 1 + load->opened++ % 200;
    source.sin_addr.s_addr = htonl(host);
    (void)setsockopt(conn->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(conn->fd, (struct sockaddr *)&source, sizeof source) != 0) {
        load_fail("bind", errno);
    }
}

void load_stream_open(struct load *load, struct load_conn *conn)
{
    *conn = (struct load_conn){.load = load, .fd = -1};
    bool churn = load->options.mode == LOAD_CHURN;
    int type = SOCK_STREAM | SOCK_CLOEXEC | (churn ? SOCK_NONBLOCK : 0);
    conn->fd = socket(load->address.ss_family, type, 0);
    if (conn->fd < 0) {
        load_fail("socket", errno);
    }
    if (load->address.ss_family == AF_INET) {
        int on = 1;
        (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (churn) {
            bind_source(load, conn);
        }
    }
    if (connect(conn->fd, (struct sockaddr *)&load->address, load->address_length) != 0) {
        if (errno != EINPROGRESS) {
            load_fail("connect", errno);
        }
        conn->connecting = true;
    }
    if (load->options.tls) {
        load_tls_connect(load, conn);
    }
    if (!churn && fcntl(conn->fd, F_SETFL, O_NONBLOCK) != 0) {
        load_fail("fcntl", errno);
    }
    conn->wants_write = conn->connecting;
    struct epoll_event event = {.events = EPOLLIN | (conn->connecting ? EPOLLOUT : 0U), .data.ptr = conn};
    if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, conn->fd, &event) != 0) {
        load_fail("epoll_ctl", errno);
    }
    if (!conn->connecting) {
        push(conn);
    }
}

static void message_done(struct load_conn *conn)
{
    struct load *load = conn->load;
    load->ops++;
    conn->sent = 0;
    conn->got = 0;
    if (load->options.mode == LOAD_CHURN) {
        (void)close(conn->fd);
        load_stream_open(load, conn);
    } else if (load->options.mode == LOAD_ECHO) {
        push(conn);
    }
}

static void pull(struct load_conn *conn)
{
    struct load *load = conn->load;
    size_t size = load->options.size;
    while (conn->got < size) {
        ptrdiff_t n = stream_recv(conn, load->incoming, load->incoming_size);
        if (n == -EAGAIN) {
            return;
        }
        if (n <= 0) {
            load_fail(n == 0 ? "the server closed a connection" : "recv", (int)-n);
        }
        conn->got += (size_t)n;
        if (conn->got > size || load->incoming[0] != conn->seq || load->incoming[n - 1] != conn->seq) {
            load_fail("the server echoed something else", 0);
        }
    }
    message_done(conn);
}

void load_stream_event(struct load_conn *conn, uint32_t events)
{
    if (conn->connecting) {
        int error = 0;
        socklen_t length = sizeof error;
        (void)getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0) {
            load_fail("connect", error);
        }
        conn->connecting = false;
        push(conn);
        return;
    }
    if ((events & EPOLLOUT) != 0 && conn->sent < conn->load->options.size) {
        push(conn);
    }
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
        if (conn->load->options.mode == LOAD_IDLE && conn->sent == 0) {
            load_fail("the server closed an idle connection", 0);
        }
        pull(conn);
    }
}
