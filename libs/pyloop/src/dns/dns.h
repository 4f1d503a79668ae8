/* Name lookups of a loop: numeric ones answered at once, others by threads of libs/pool that never see
 * Python. Thread: the GIL guards everything here, but for what libs/resolve does to a request between submit
 * and done. */
#ifndef TDL_PYLOOP_DNS_H
#define TDL_PYLOOP_DNS_H

#include "ground/compat.h"

#include <stdbool.h>
#include <stdint.h>

#include "treadle/list.h"
#include "treadle/patience.h"
#include "treadle/pool.h"

#define TDL_DNS_FAMILIES 16
#define TDL_DNS_KINDS 16

#define TDL_DNS_NAMES(XX)                                                                                    \
    XX(socket)                                                                                               \
    XX(_socket)                                                                                              \
    XX(getaddrinfo)                                                                                          \
    XX(getnameinfo)                                                                                          \
    XX(converter)                                                                                            \
    XX(AddressFamily)                                                                                        \
    XX(SocketKind)

struct tdl_module_state;
struct tdl_part;

/* One loop's lookups. */
struct tdl_dns {
    struct tdl_pool *pool;        /* opened by the first lookup that needs a thread */
    struct tdl_node requests;     /* under way, oldest first; each holds its future */
    struct tdl_patience patience; /* of a loop that watches for an answer before it sleeps */
    uint32_t slots;
    uint64_t inline_count; /* answered at once */
    uint64_t native_count; /* handed to the pool */
    uint64_t python_count; /* left to asyncio's executor path */
};

/* What the standard library's lookups looked like at import; while they still do, the native path stands in
 * for them.
 */
struct tdl_dns_state {
    PyObject *base_events; /* the modules, each with its dict */
    PyObject *socket;
    PyObject *raw_socket;
    PyObject *getaddrinfo; /* socket's function, NULL if it was replaced before treadle was imported */
    PyObject *getaddrinfo_code;
    PyObject *raw_getaddrinfo; /* _socket's */
    PyObject *getnameinfo;
    PyObject *converter; /* socket._intenum_converter */
    PyObject *converter_code;
    PyObject *address_family;
    PyObject *socket_kind;
    PyObject *address_info;
    PyObject *gaierror;
    PyObject *families[TDL_DNS_FAMILIES]; /* enum members by number, the usual ones */
    PyObject *kinds[TDL_DNS_KINDS];
    PyObject *empty;
#define TDL_NAME_FIELD(name) PyObject *str_##name;
    TDL_DNS_NAMES(TDL_NAME_FIELD)
#undef TDL_NAME_FIELD
    uint64_t seen[3]; /* the dicts' versions when all was last found in place */
};

extern PyMethodDef tdl__dns_methods[];
bool tdl__dns_is_standard(struct tdl_dns_state *st);
int tdl__dns_members_init(struct tdl_dns_state *st);
int tdl__dns_state_init(struct tdl_dns_state *st);
int tdl__dns_state_traverse(struct tdl_dns_state *st, visitproc visit, void *arg);
void tdl__dns_state_clear(struct tdl_dns_state *st);
int tdl__dns_module_init(struct tdl_module_state *module);
void tdl__dns_module_free(struct tdl_module_state *module);
extern const struct tdl_part tdl__dns_part;

#endif
