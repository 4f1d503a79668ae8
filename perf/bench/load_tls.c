/* TLS for the load generator's streams; built without OpenSSL it says so. */
#include "load.h"

#include <errno.h>

#ifdef LOAD_WITH_TLS

#include <openssl/ssl.h>

struct load_tls *load_tls_new(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL) {
        load_fail("SSL_CTX_new", 0);
    }
    /* The certificate is one that the benchmark made itself. */
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return (struct load_tls *)context;
}

void load_tls_delete(struct load_tls *tls)
{
    SSL_CTX_free((SSL_CTX *)tls);
}

void load_tls_free(struct load_conn *conn)
{
    SSL_free(conn->tls);
}

void load_tls_connect(struct load *load, struct load_conn *conn)
{
    SSL *tls = SSL_new((SSL_CTX *)load->tls);
    if (tls == NULL || SSL_set_fd(tls, conn->fd) != 1 || SSL_connect(tls) != 1) {
        load_fail("TLS handshake", 0);
    }
    conn->tls = tls;
}

static ptrdiff_t outcome(struct load_conn *conn, int n)
{
    if (n > 0) {
        return n;
    }
    switch (SSL_get_error(conn->tls, n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return -EPROTO;
    }
}

ptrdiff_t load_tls_send(struct load_conn *conn, const void *data, size_t size)
{
    return outcome(conn, SSL_write(conn->tls, data, (int)size));
}

ptrdiff_t load_tls_recv(struct load_conn *conn, void *data, size_t size)
{
    return outcome(conn, SSL_read(conn->tls, data, (int)size));
}

#else

struct load_tls *load_tls_new(void)
{
    load_fail("this load generator was built without OpenSSL", 0);
}

void load_tls_delete(struct load_tls *tls)
{
    (void)tls;
}

void load_tls_free(struct load_conn *conn)
{
    (void)conn;
}

void load_tls_connect(struct load *load, struct load_conn *conn)
{
    (void)load;
    (void)conn;
}

ptrdiff_t load_tls_send(struct load_conn *conn, const void *data, size_t size)
{
    (void)conn;
    (void)data;
    (void)size;
    return -ENOSYS;
}

ptrdiff_t load_tls_recv(struct load_conn *conn, void *data, size_t size)
{
    (void)conn;
    (void)data;
    (void)size;
    return -ENOSYS;
}

#endif
