#include "resolver.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "treadle/atomic.h"

#define EXPORT __attribute__((visibility("default")))
#define SLEEPY_ADDRESS 0xc6336401u /* 198.51.100.1, of the documentation's network */

typedef int (*getaddrinfo_fn)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
typedef int (*getnameinfo_fn)(const struct sockaddr *, socklen_t, char *, socklen_t, char *, socklen_t, int);

/* Words and futexes only: a lock could be held by a thread that a fork leaves behind. */
static tdl_atomic_u32 held;
static tdl_atomic_u32 inside;
static tdl_atomic_u32 calls;
static int log_fd = -1;
static unsigned long sleep_ms;
static getaddrinfo_fn libc_getaddrinfo;
static getnameinfo_fn libc_getnameinfo;

static void futex_wait(tdl_atomic_u32 *word, uint32_t value)
{
    (void)syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(tdl_atomic_u32 *word)
{
    (void)syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* A message as a translation of libc's may be: in whatever encoding. */
EXPORT const char *gai_strerror(int code)
{
    const char *text = getenv("TDL_RESOLVER_ERROR");
    const char *(*libc)(int);
    void *next = dlsym(RTLD_NEXT, "gai_strerror");
    memcpy(&libc, &next, sizeof libc);
    return text != NULL ? text : libc(code);
}

__attribute__((constructor)) static void resolver_load(void)
{
    const char *path = getenv("TDL_RESOLVER_LOG");
    const char *sleep_text = getenv("TDL_RESOLVER_SLEEP_MS");
    void *forward = dlsym(RTLD_NEXT, "getaddrinfo");
    void *reverse = dlsym(RTLD_NEXT, "getnameinfo");
    memcpy(&libc_getaddrinfo, &forward, sizeof forward);
    memcpy(&libc_getnameinfo, &reverse, sizeof reverse);
    if (path != NULL) {
        log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    }
    if (sleep_text != NULL) {
        sleep_ms = strtoul(sleep_text, NULL, 10);
    }
}

static void sleep_for(unsigned long ms)
{
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (ms > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {
        continue;
    }
}

static void enter(const char *call, const char *first, const char *second)
{
    char line[512];
    int length = snprintf(line, sizeof line, "%s %s %s\n", call, first != NULL ? first : "NULL",
                          second != NULL ? second : "NULL");
    if (log_fd >= 0 && length > 0) {
        size_t size = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
        ssize_t wrote = write(log_fd, line, size);
        (void)wrote;
    }
    (void)tdl_fetch_add_seq_u32(&calls, 1);
    (void)tdl_fetch_add_seq_u32(&inside, 1);
    futex_wake(&inside);
    sleep_for(sleep_ms);
    while (tdl_load_seq_u32(&held) != 0) {
        futex_wait(&held, 1);
    }
}

static void leave(void)
{
    (void)tdl_fetch_add_seq_u32(&inside, (uint32_t)-1);
}

/* Reads "<prefix><number>.test". */
static bool name_says(const char *node, const char *prefix, unsigned long *number)
{
    size_t length = strlen(prefix);
    char *end;
    if (node == NULL || strncmp(node, prefix, length) != 0) {
        return false;
    }
    *number = strtoul(node + length, &end, 10);
    return end != node + length && strcmp(end, ".test") == 0;
}

EXPORT int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **rows)
{
    unsigned long number;
    int code;
    enter("getaddrinfo", node, service);
    int error = 0;
    if (name_says(node, "sleep-", &number)) {
        sleep_for(number);
        code = libc_getaddrinfo("localhost", service, hints, rows);
    } else if (name_says(node, "system-", &number)) {
        code = EAI_SYSTEM;
        error = (int)number;
    } else if (name_says(node, "eai-", &number)) {
        code = -(int)number;
    } else {
        errno = 0;
        code = libc_getaddrinfo(node, service, hints, rows);
        error = errno;
    }
    leave();
    errno = error;
    return code;
}

EXPORT int getnameinfo(const struct sockaddr *address, socklen_t length, char *host, socklen_t host_size,
                       char *service, socklen_t service_size, int flags)
{
    struct sockaddr_in in = {0};
    enter("getnameinfo", "-", "-");
    memcpy(&in, address, length < sizeof in ? length : sizeof in);
    if (in.sin_family == AF_INET && in.sin_addr.s_addr == htonl(SLEEPY_ADDRESS)) {
        sleep_for(ntohs(in.sin_port));
    }
    int code = libc_getnameinfo(address, length, host, host_size, service, service_size, flags);
    int error = errno;
    leave();
    errno = error;
    return code;
}

EXPORT void resolver_hold(void)
{
    tdl_store_seq_u32(&held, 1);
}

EXPORT void resolver_let_go(void)
{
    tdl_store_seq_u32(&held, 0);
    futex_wake(&held);
}

EXPORT unsigned resolver_inside(void)
{
    return tdl_load_seq_u32(&inside);
}

EXPORT unsigned resolver_calls(void)
{
    return tdl_load_seq_u32(&calls);
}

EXPORT void resolver_wait_inside(unsigned count)
{
    uint32_t now = tdl_load_seq_u32(&inside);
    while (now < count) {
        futex_wait(&inside, now);
        now = tdl_load_seq_u32(&inside);
    }
}

EXPORT void resolver_after_fork(void)
{
    tdl_store_seq_u32(&inside, 0);
}
