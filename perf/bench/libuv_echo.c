/* The limit of the design: an echo server in plain C on libuv, with nothing of Python in it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct peer {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    char buffer[65536];
};

struct rest {
    uv_write_t request;
    char data[];
};

static void check(int code, const char *what)
{
    if (code < 0) {
        (void)fprintf(stderr, "libuv_echo: %s: %s\n", what, uv_strerror(code));
        exit(1);
    }
}

static void peer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void lend_buffer(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct peer *peer = handle->data;
    (void)size;
    *buf = uv_buf_init(peer->buffer, sizeof peer->buffer);
}

static void rest_written(uv_write_t *request, int status)
{
    (void)status;
    free(request->data);
}

static void echo(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    if (n < 0) {
        uv_close((uv_handle_t *)stream, peer_closed);
        return;
    }
    uv_buf_t all = uv_buf_init(buf->base, (unsigned int)n);
    int sent = uv_try_write(stream, &all, 1);
    sent = sent < 0 ? 0 : sent;
    if (sent == n) {
        return;
    }
    size_t left = (size_t)(n - sent);
    struct rest *rest = malloc(sizeof *rest + left);
    check(rest == NULL ? UV_ENOMEM : 0, "malloc");
    (void)memcpy(rest->data, buf->base + sent, left);
    rest->request.data = rest;
    uv_buf_t tail = uv_buf_init(rest->data, (unsigned int)left);
    if (uv_write(&rest->request, stream, &tail, 1, rest_written) != 0) {
        free(rest);
    }
}

static void accept_peer(uv_stream_t *listener, int status)
{
    check(status, "listen");
    struct peer *peer = malloc(sizeof *peer);
    check(peer == NULL ? UV_ENOMEM : 0, "malloc");
    if (listener->type == UV_TCP) {
        check(uv_tcp_init(listener->loop, &peer->uv.tcp), "uv_tcp_init");
    } else {
        check(uv_pipe_init(listener->loop, &peer->uv.pipe, 0), "uv_pipe_init");
    }
    peer->uv.handle.data = peer;
    check(uv_accept(listener, &peer->uv.stream), "uv_accept");
    if (listener->type == UV_TCP) {
        check(uv_tcp_nodelay(&peer->uv.tcp, 1), "uv_tcp_nodelay");
    }
    check(uv_read_start(&peer->uv.stream, lend_buffer, echo), "uv_read_start");
}

static int listen_tcp(uv_loop_t *loop, uv_tcp_t *tcp)
{
    struct sockaddr_in address;
    struct sockaddr_storage bound;
    int length = sizeof bound;
    check(uv_ip4_addr("127.0.0.1", 0, &address), "uv_ip4_addr");
    check(uv_tcp_init(loop, tcp), "uv_tcp_init");
    check(uv_tcp_bind(tcp, (const struct sockaddr *)&address, 0), "bind");
    check(uv_listen((uv_stream_t *)tcp, 1024, accept_peer), "listen");
    check(uv_tcp_getsockname(tcp, (struct sockaddr *)&bound, &length), "getsockname");
    return ntohs(((struct sockaddr_in *)&bound)->sin_port);
}

int main(int argc, char **argv)
{
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t tcp;
    uv_pipe_t pipe;
    int port = 0;
    /* A client that leaves while its echo is on the way must not end the server. */
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "--unix") == 0) {
        check(uv_pipe_init(loop, &pipe, 0), "uv_pipe_init");
        check(uv_pipe_bind(&pipe, argv[2]), "bind");
        check(uv_listen((uv_stream_t *)&pipe, 1024, accept_peer), "listen");
    } else if (argc == 1) {
        port = listen_tcp(loop, &tcp);
    } else {
        (void)fputs("usage: libuv_echo [--unix PATH]\n", stderr);
        return 2;
    }
    (void)printf("READY %d\n", port);
    (void)fflush(stdout);
    return uv_run(loop, UV_RUN_DEFAULT);
}
