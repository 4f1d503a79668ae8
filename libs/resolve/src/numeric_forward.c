#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>

#include "treadle/numeric.h"

#ifdef __GLIBC__
#define LIBC_IS_KNOWN 1
#else
#define LIBC_IS_KNOWN 0 /* another libc has other rows */
#endif

#define FLAGS_ANSWERED (AI_PASSIVE | AI_CANONNAME | AI_NUMERICHOST | AI_NUMERICSERV | AI_V4MAPPED | AI_ALL)
#define PORT_DIGITS_MAX 9 /* more might not fit libc's int */

/* glibc's table, in its order: a request with a type or a protocol gets the first line that fits. */
static const struct type_line {
    int socktype;
    int protocol;
    bool any_protocol;
    bool by_default;
} type_lines[] = {
    {SOCK_STREAM, IPPROTO_TCP, false, true},
    {SOCK_DGRAM, IPPROTO_UDP, false, true},
    {SOCK_DCCP, IPPROTO_DCCP, false, false},
    {SOCK_DGRAM, IPPROTO_UDPLITE, false, false},
    {SOCK_STREAM, IPPROTO_SCTP, false, false},
    {SOCK_SEQPACKET, IPPROTO_SCTP, false, false},
    {SOCK_RAW, 0, true, true},
};
#define TYPE_LINES (sizeof type_lines / sizeof type_lines[0])

/* Digits only: libc's strtoul takes signs and blanks too, which nobody means. An empty service is as none. */
static bool parse_service(const char *service, bool *given, uint16_t *port)
{
    uint32_t number = 0;
    size_t i = 0;
    *given = service != NULL && service[0] != '\0';
    for (; *given && service[i] != '\0'; i++) {
        if (service[i] < '0' || service[i] > '9' || i == PORT_DIGITS_MAX) {
            return false;
        }
        number = number * 10u + (uint32_t)(service[i] - '0');
    }
    *port = htons((uint16_t)(number & 0xffffu));
    return true;
}

static bool choose_rows(struct tdl_numeric *answer, const struct addrinfo *hints, bool service_given)
{
    answer->count = 0;
    bool all = hints->ai_socktype == 0 && hints->ai_protocol == 0;
    for (size_t i = 0; i < TYPE_LINES; i++) {
        const struct type_line *line = &type_lines[i];
        if (all && !line->by_default) {
            continue;
        }
        if (hints->ai_socktype != 0 && hints->ai_socktype != line->socktype) {
            continue;
        }
        if (hints->ai_protocol != 0 && !line->any_protocol && hints->ai_protocol != line->protocol) {
            continue;
        }
        struct tdl_numeric_row *row = &answer->rows[answer->count++];
        row->socktype = line->socktype;
        row->protocol = line->any_protocol ? hints->ai_protocol : line->protocol;
        if (all) {
            continue;
        }
        /* A raw socket with a service is an error, and errors are libc's to tell. */
        return !(line->any_protocol && service_given);
    }
    return all;
}

/* Four plain decimals, the usual case, without a call to libc. */
static bool parse_dotted(const char *text, uint8_t bytes[4])
{
    for (int part = 0; part < 4; part++) {
        unsigned value = 0;
        int digits = 0;
        for (; *text >= '0' && *text <= '9'; text++, digits++) {
            if (digits == 3 || (digits > 0 && value == 0)) {
                return false;
            }
            value = value * 10u + (unsigned)(*text - '0');
        }
        if (digits == 0 || value > 255u || *text != (part < 3 ? '.' : '\0')) {
            return false;
        }
        bytes[part] = (uint8_t)value;
        text++;
    }
    return true;
}

/* All that libc takes for an IPv4 address: short, octal and hexadecimal forms too. */
static bool parse_v4(const char *text, struct in_addr *address)
{
    uint8_t bytes[4];
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    if (parse_dotted(text, bytes)) {
        memcpy(&address->s_addr, bytes, sizeof bytes);
        return true;
    }
    /* inet_aton forgives what follows a blank, getaddrinfo does not. */
    if (text[strspn(text, "0123456789abcdefABCDEFxX.")] != '\0') {
        return false;
    }
    return inet_aton(text, address) != 0;
}

static bool scope_is_by_interface(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LINKLOCAL(address) || IN6_IS_ADDR_MC_NODELOCAL(address) ||
           IN6_IS_ADDR_MC_LINKLOCAL(address);
}

static bool parse_scope(const char *text, const struct in6_addr *address, uint32_t *scope)
{
    if (scope_is_by_interface(address)) {
        *scope = if_nametoindex(text);
        if (*scope != 0) {
            return true;
        }
    }
    uint64_t number = 0;
    size_t i = 0;
    for (; text[i] >= '0' && text[i] <= '9'; i++) {
        number = number * 10u + (uint64_t)(text[i] - '0');
        if (number > UINT32_MAX) {
            return false;
        }
    }
    *scope = (uint32_t)number;
    return i > 0 && text[i] == '\0';
}

static bool parse_v6(const char *text, struct in6_addr *address, uint32_t *scope)
{
    char plain[INET6_ADDRSTRLEN];
    const char *percent = strchr(text, '%');
    *scope = 0;
    if (percent == NULL) {
        return inet_pton(AF_INET6, text, address) > 0;
    }
    size_t length = (size_t)(percent - text);
    if (length >= sizeof plain) {
        return false;
    }
    memcpy(plain, text, length);
    plain[length] = '\0';
    return inet_pton(AF_INET6, plain, address) > 0 && parse_scope(percent + 1, address, scope);
}

static void set_v4(struct tdl_numeric *answer, struct in_addr address, uint16_t port)
{
    struct sockaddr_in *in = &answer->address.in;
    memset(in, 0, sizeof *in);
    in->sin_family = AF_INET;
    in->sin_port = port;
    in->sin_addr = address;
    answer->length = sizeof *in;
}

static void set_v6(struct tdl_numeric *answer, const struct in6_addr *address, uint32_t scope, uint16_t port)
{
    struct sockaddr_in6 *in6 = &answer->address.in6;
    memset(in6, 0, sizeof *in6);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = port;
    in6->sin6_addr = *address;
    in6->sin6_scope_id = scope;
    answer->length = sizeof *in6;
}

static bool answer_v4(struct tdl_numeric *answer, struct in_addr v4, const struct addrinfo *hints,
                      uint16_t port)
{
    if (hints->ai_family != AF_INET6) {
        set_v4(answer, v4, port);
        return true;
    }
    if ((hints->ai_flags & AI_V4MAPPED) == 0) {
        return false;
    }
    struct in6_addr mapped = {0};
    mapped.s6_addr[10] = 0xff;
    mapped.s6_addr[11] = 0xff;
    memcpy(&mapped.s6_addr[12], &v4.s_addr, sizeof v4.s_addr);
    set_v6(answer, &mapped, 0, port);
    return true;
}

static bool answer_host(struct tdl_numeric *answer, const char *node, const struct addrinfo *hints,
                        uint16_t port)
{
    struct in_addr v4;
    struct in6_addr v6;
    uint32_t scope;
    if (parse_v4(node, &v4)) {
        return answer_v4(answer, v4, hints, port);
    }
    if (strchr(node, ':') == NULL || !parse_v6(node, &v6, &scope)) {
        return false;
    }
    if (hints->ai_family != AF_INET) {
        set_v6(answer, &v6, scope, port);
        return true;
    }
    if (!IN6_IS_ADDR_V4MAPPED(&v6)) {
        return false;
    }
    memcpy(&v4.s_addr, &v6.s6_addr[12], sizeof v4.s_addr);
    set_v4(answer, v4, port);
    return true;
}

/* No host means any address or the loopback; with no family libc would order the two by its routes. */
static bool answer_no_host(struct tdl_numeric *answer, const struct addrinfo *hints, uint16_t port)
{
    bool passive = (hints->ai_flags & AI_PASSIVE) != 0;
    if (hints->ai_family == AF_INET) {
        struct in_addr v4 = {htonl(passive ? INADDR_ANY : INADDR_LOOPBACK)};
        set_v4(answer, v4, port);
        return true;
    }
    if (hints->ai_family == AF_INET6) {
        set_v6(answer, passive ? &in6addr_any : &in6addr_loopback, 0, port);
        return true;
    }
    return false;
}

bool tdl_numeric_forward(struct tdl_numeric *answer, const char *node, const char *service,
                         const struct addrinfo *hints)
{
    static const struct addrinfo no_hints;
    if (hints == NULL) {
        hints = &no_hints;
    }
    bool service_given;
    uint16_t port;
    if (!LIBC_IS_KNOWN || (hints->ai_flags & ~FLAGS_ANSWERED) != 0) {
        return false;
    }
    if (hints->ai_family != AF_UNSPEC && hints->ai_family != AF_INET && hints->ai_family != AF_INET6) {
        return false;
    }
    if (!parse_service(service, &service_given, &port) || !choose_rows(answer, hints, service_given)) {
        return false;
    }
    bool canonical = (hints->ai_flags & AI_CANONNAME) != 0;
    answer->canonical = canonical ? node : NULL;
    if (node != NULL) {
        return answer_host(answer, node, hints, port);
    }
    return service != NULL && !canonical && answer_no_host(answer, hints, port);
}
