#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "treadle/numeric.h"

#define FLAGS_WANTED (NI_NUMERICHOST | NI_NUMERICSERV)
#define FLAGS_ANSWERED (FLAGS_WANTED | NI_DGRAM | NI_NOFQDN)

static char *put_number(char *at, unsigned number)
{
    char digits[10];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10u);
        number /= 10u;
    } while (number != 0);
    while (count > 0) {
        *at++ = digits[--count];
    }
    return at;
}

static void put_v4(char *host, const struct in_addr *address)
{
    uint8_t bytes[4];
    memcpy(bytes, &address->s_addr, sizeof bytes);
    for (int i = 0; i < 4; i++) {
        host = put_number(host, bytes[i]);
        *host++ = i < 3 ? '.' : '\0';
    }
}

static bool put_v6(char *host, const struct sockaddr_in6 *in6)
{
    char interface[IF_NAMESIZE];
    if (inet_ntop(AF_INET6, &in6->sin6_addr, host, INET6_ADDRSTRLEN) == NULL) {
        return false;
    }
    if (in6->sin6_scope_id == 0) {
        return true;
    }
    char *at = host + strlen(host);
    *at++ = '%';
    bool by_interface = IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) || IN6_IS_ADDR_MC_LINKLOCAL(&in6->sin6_addr);
    if (by_interface && if_indextoname(in6->sin6_scope_id, interface) != NULL) {
        memcpy(at, interface, strlen(interface) + 1);
        return true;
    }
    *put_number(at, in6->sin6_scope_id) = '\0';
    return true;
}

bool tdl_numeric_reverse(char host[TDL_NUMERIC_HOST_MAX], char service[TDL_NUMERIC_SERVICE_MAX],
                         const struct sockaddr *address, socklen_t length, int flags)
{
    uint16_t port;
    if (address == NULL || length < sizeof(sa_family_t) || (flags & FLAGS_WANTED) != FLAGS_WANTED ||
        (flags & ~FLAGS_ANSWERED) != 0) {
        return false;
    }
    if (address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        put_v4(host, &in.sin_addr);
        port = in.sin_port;
    } else if (address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        if (!put_v6(host, &in6)) {
            return false;
        }
        port = in6.sin6_port;
    } else {
        return false;
    }
    *put_number(service, ntohs(port)) = '\0';
    return true;
}
