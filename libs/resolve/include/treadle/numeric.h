/* Lookups whose answer needs no database: numeric hosts and services, answered on the caller's thread as libc
 * would.
 *
 * What is not surely libc's answer, rows and order included, is refused and never guessed: errors, names,
 * flags whose meaning depends on the machine, an absent host of no certain family (libc sorts those by its
 * routes).
 *
 * Example:
 *     struct tdl_numeric answer;
 *     struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
 *     bool answered = tdl_numeric_forward(&answer, "127.0.0.1", "80", &hints);
 *     (void)answered; */
#ifndef TREADLE_NUMERIC_H
#define TREADLE_NUMERIC_H

#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

struct addrinfo; /* netdb.h declares it only with POSIX, not in strict C */

#define TDL_NUMERIC_ROWS_MAX 3u
#define TDL_NUMERIC_HOST_MAX 64u /* address, '%', interface name, NUL */
#define TDL_NUMERIC_SERVICE_MAX 8u

struct tdl_numeric_row {
    int socktype;
    int protocol;
};

/* One address, in a row for each socket type. */
struct tdl_numeric {
    uint32_t count;
    struct tdl_numeric_row rows[TDL_NUMERIC_ROWS_MAX];
    const char *canonical; /* of the first row; the host as it was asked, or NULL */
    socklen_t length;
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } address;
};

/* Answers a getaddrinfo(3) that succeeds without a database; false means: ask libc.
 * Thread:  any
 * Owns:    answer->canonical points to node
 * Errors:  false for all that is refused; *answer is then unspecified
 * Cost:    O(length), no allocation; a syscall or three for a scope by interface name only */
bool tdl_numeric_forward(struct tdl_numeric *answer, const char *node, const char *service,
                         const struct addrinfo *hints);

/* Answers a getnameinfo(3) with NI_NUMERICHOST and NI_NUMERICSERV; false means: ask libc.
 * Thread:  any
 * Owns:    the texts are written to the caller's buffers
 * Errors:  false for all that is refused; the buffers are then unspecified
 * Cost:    O(1), no allocation; syscalls for a link-local scope only */
bool tdl_numeric_reverse(char host[TDL_NUMERIC_HOST_MAX], char service[TDL_NUMERIC_SERVICE_MAX],
                         const struct sockaddr *address, socklen_t length, int flags);

#ifdef __cplusplus
}
#endif

#endif
