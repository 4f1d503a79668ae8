/* What the files of the loop's lookups share. */
#ifndef TDL_PYLOOP_DNS_INTERNAL_H
#define TDL_PYLOOP_DNS_INTERNAL_H

#include "dns/dns.h"
#include "loop/loop.h"

#include "treadle/lookup.h"
#include "treadle/numeric.h"

#define TDL_DNS_TEXT_MAX 16 /* a port as text */

/* What a lookup was given, once it is known to be of a plain shape. */
struct tdl_dns_ask {
    const char *node; /* NULL for None */
    const char *service;
    char port[TDL_DNS_TEXT_MAX]; /* holds service if it was a number */
    struct addrinfo hints;
};

struct tdl_dns_ask_reverse {
    struct sockaddr_storage address;
    socklen_t length;
    int flags;
};

/* shape.c: 1 for a plain shape, 0 for one that is asyncio's to answer; never an exception */
int tdl__dns_shape(struct tdl_dns_state *st, PyObject *const args[6], struct tdl_dns_ask *out);
int tdl__dns_shape_reverse(struct tdl_dns_state *st, PyObject *sockaddr, PyObject *flags,
                           struct tdl_dns_ask_reverse *out);

/* rows.c */
PyObject *tdl__dns_rows(struct tdl_dns_state *st, const struct addrinfo *first);
PyObject *tdl__dns_numeric_rows(struct tdl_dns_state *st, const struct tdl_numeric *answer);
PyObject *tdl__dns_names(const char *host, const char *service);
void tdl__dns_raise(struct tdl_dns_state *st, int eai, int system_errno);

#endif
