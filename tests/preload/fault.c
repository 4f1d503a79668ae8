/* Preloaded into a program: the k-th call of one function fails with one error, and is not made. Nothing
 * fails until a test arms it, and the calls of a thread that exempts itself are neither counted nor
 * failed. A close that fails has closed, as Linux's does. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "treadle/atomic.h"

#define EXPORT __attribute__((visibility("default")))

/* Where each call is counted: some functions are several, by what they are asked. */
/* clang-format off */
#define CALLS(XX)                                                                                            \
    XX(accept4) XX(bind) XX(close) XX(connect) XX(copy_file_range) XX(dup) XX(dup3) XX(epoll_add)            \
    XX(epoll_create1) XX(epoll_del) XX(epoll_mod) XX(epoll_wait) XX(eventfd) XX(fcntl) XX(fdatasync)         \
    XX(fstat) XX(fsync) XX(ftruncate) XX(getpeername) XX(getsockname) XX(getsockopt) XX(io_getevents)        \
    XX(io_setup) XX(io_submit) XX(ioctl) XX(io_uring_enter) XX(io_uring_register) XX(io_uring_setup)         \
    XX(listen) XX(mmap) XX(open) XX(openat2) XX(pidfd_open) XX(pipe2) XX(poll) XX(pread) XX(preadv2)         \
    XX(pthread_create) XX(pwrite) XX(read) XX(readv) XX(recv) XX(recvfrom) XX(recvmmsg) XX(recvmsg)          \
    XX(send) XX(sendfile) XX(sendmmsg) XX(sendmsg) XX(sendto) XX(setsockopt) XX(shutdown) XX(socket)         \
    XX(socketpair) XX(statx) XX(write) XX(writev)
/* clang-format on */

enum call {
#define CALL_ID(name) CALL_##name,
    CALLS(CALL_ID)
#undef CALL_ID
        CALL_COUNT
};

static const char *const names[] = {
#define CALL_NAME(name) #name,
    CALLS(CALL_NAME)
#undef CALL_NAME
};

static struct {
    bool counting;
    int which; /* the call to fail, or -1 */
    int error;
    unsigned at;
    tdl_atomic_u32 failed;
    tdl_atomic_u32 closed_twice;
    tdl_atomic_u32 calls[CALL_COUNT];
} fault = {.which = -1};

static __thread bool exempt;

/* Who watches a descriptor, and for what: the last that was told to an epoll. */
enum { WATCHED_MAX = 256 };
static struct {
    int epoll;
    struct epoll_event event;
} watched[WATCHED_MAX];
static pthread_mutex_t watched_lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT int tdl_fault_count(void)
{
    return CALL_COUNT;
}

EXPORT const char *tdl_fault_name(int which)
{
    return names[which];
}

EXPORT unsigned tdl_fault_calls(int which)
{
    return tdl_load_relaxed_u32(&fault.calls[which]);
}

EXPORT unsigned tdl_fault_failed(void)
{
    return tdl_load_relaxed_u32(&fault.failed);
}

/* Closes of numbers that nobody had: each might as well have been another's. */
EXPORT unsigned tdl_fault_closed_twice(void)
{
    return tdl_load_relaxed_u32(&fault.closed_twice);
}

/* From now on calls are counted, and the call number `at` (from 0) of one function fails; which is -1 for
 * none. */
EXPORT void tdl_fault_arm(int which, unsigned at, int error)
{
    for (int i = 0; i < CALL_COUNT; i++) {
        tdl_store_relaxed_u32(&fault.calls[i], 0);
    }
    tdl_store_relaxed_u32(&fault.failed, 0);
    tdl_store_relaxed_u32(&fault.closed_twice, 0);
    fault.error = error;
    fault.at = at;
    fault.which = which;
    fault.counting = true;
}

EXPORT void tdl_fault_disarm(void)
{
    fault.counting = false;
}

EXPORT void tdl_fault_exempt(int yes)
{
    exempt = yes != 0;
}

static bool fails(enum call which)
{
    if (!fault.counting || exempt) {
        return false;
    }
    unsigned n = tdl_fetch_add_relaxed_u32(&fault.calls[which], 1);
    if (fault.which != (int)which || fault.at != n) {
        return false;
    }
    (void)tdl_fetch_add_relaxed_u32(&fault.failed, 1);
    errno = fault.error;
    return true;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* A function that libc may have under a second name, for large files. */
#define WRAP(result, name, call, params, args)                                                               \
    EXPORT result name params;                                                                               \
    EXPORT result name params                                                                                \
    {                                                                                                        \
        static result(*real) params;                                                                         \
        if (real == NULL) {                                                                                  \
            void *found = next(#name);                                                                       \
            memcpy(&real, &found, sizeof real);                                                              \
        }                                                                                                    \
        return fails(CALL_##call) ? (result)-1 : real args;                                                  \
    }

static int real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    static int (*real)(int, int, int, struct epoll_event *);
    if (real == NULL) {
        void *found = next("epoll_ctl");
        memcpy(&real, &found, sizeof real);
    }
    return real(epoll, op, fd, event);
}

/* A socket that says EAGAIN is empty, and what is there afterwards has come since, which an epoll is told
 * of. A failure that is made up needs that too: who waits for the edge would wait for what a kernel does
 * not do. */
static void comes_later(int fd)
{
    int error = errno;
    pthread_mutex_lock(&watched_lock);
    if (error == EAGAIN && fd >= 0 && fd < WATCHED_MAX && watched[fd].epoll > 0) {
        (void)real_epoll_ctl(watched[fd].epoll, EPOLL_CTL_MOD, fd, &watched[fd].event);
    }
    pthread_mutex_unlock(&watched_lock);
    errno = error;
}

static void note_watched(int epoll, int op, int fd, const struct epoll_event *event)
{
    if (fd < 0 || fd >= WATCHED_MAX) {
        return;
    }
    pthread_mutex_lock(&watched_lock);
    watched[fd].epoll = op == EPOLL_CTL_DEL ? 0 : epoll;
    if (op != EPOLL_CTL_DEL) {
        watched[fd].event = *event;
    }
    pthread_mutex_unlock(&watched_lock);
}

#define WRAP_RECV(result, name, params, args)                                                                \
    EXPORT result name params;                                                                               \
    EXPORT result name params                                                                                \
    {                                                                                                        \
        static result(*real) params;                                                                         \
        if (real == NULL) {                                                                                  \
            void *found = next(#name);                                                                       \
            memcpy(&real, &found, sizeof real);                                                              \
        }                                                                                                    \
        if (fails(CALL_##name)) {                                                                            \
            comes_later(fd);                                                                                 \
            return (result)-1;                                                                               \
        }                                                                                                    \
        return real args;                                                                                    \
    }

WRAP(int, accept4, accept4, (int fd, struct sockaddr *addr, socklen_t *len, int flags),
     (fd, addr, len, flags))
WRAP(int, bind, bind, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
WRAP(int, connect, connect, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
WRAP(ssize_t, copy_file_range, copy_file_range,
     (int in, off64_t *in_at, int out, off64_t *out_at, size_t len, unsigned flags),
     (in, in_at, out, out_at, len, flags))
WRAP(int, dup, dup, (int fd), (fd))
WRAP(int, dup3, dup3, (int fd, int to, int flags), (fd, to, flags))
WRAP(int, epoll_create1, epoll_create1, (int flags), (flags))
WRAP(int, epoll_wait, epoll_wait, (int fd, struct epoll_event *events, int max, int timeout),
     (fd, events, max, timeout))
WRAP(int, epoll_pwait, epoll_wait,
     (int fd, struct epoll_event *events, int max, int timeout, const sigset_t *mask),
     (fd, events, max, timeout, mask))
WRAP(int, eventfd, eventfd, (unsigned value, int flags), (value, flags))
WRAP(int, fdatasync, fdatasync, (int fd), (fd))
WRAP(int, fstat, fstat, (int fd, struct stat *st), (fd, st))
WRAP(int, fsync, fsync, (int fd), (fd))
WRAP(int, ftruncate, ftruncate, (int fd, off_t size), (fd, size))
WRAP(int, ftruncate64, ftruncate, (int fd, off64_t size), (fd, size))
WRAP(int, getpeername, getpeername, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))
WRAP(int, getsockname, getsockname, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))
WRAP(int, getsockopt, getsockopt, (int fd, int level, int name, void *value, socklen_t *len),
     (fd, level, name, value, len))
WRAP(int, listen, listen, (int fd, int backlog), (fd, backlog))
WRAP(int, pipe2, pipe2, (int fds[2], int flags), (fds, flags))
WRAP(int, poll, poll, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
WRAP(ssize_t, pread, pread, (int fd, void *data, size_t len, off_t at), (fd, data, len, at))
WRAP(ssize_t, pread64, pread, (int fd, void *data, size_t len, off64_t at), (fd, data, len, at))
WRAP(ssize_t, preadv2, preadv2, (int fd, const struct iovec *iov, int count, off_t at, int flags),
     (fd, iov, count, at, flags))
WRAP(ssize_t, pwrite, pwrite, (int fd, const void *data, size_t len, off_t at), (fd, data, len, at))
WRAP(ssize_t, pwrite64, pwrite, (int fd, const void *data, size_t len, off64_t at), (fd, data, len, at))
WRAP(ssize_t, read, read, (int fd, void *data, size_t len), (fd, data, len))
WRAP(ssize_t, readv, readv, (int fd, const struct iovec *iov, int count), (fd, iov, count))
WRAP_RECV(ssize_t, recv, (int fd, void *data, size_t len, int flags), (fd, data, len, flags))
WRAP_RECV(ssize_t, recvfrom,
          (int fd, void *data, size_t len, int flags, struct sockaddr *addr, socklen_t *addr_len),
          (fd, data, len, flags, addr, addr_len))
WRAP_RECV(int, recvmmsg, (int fd, struct mmsghdr *msgs, unsigned count, int flags, struct timespec *timeout),
          (fd, msgs, count, flags, timeout))
WRAP_RECV(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags))
WRAP(ssize_t, send, send, (int fd, const void *data, size_t len, int flags), (fd, data, len, flags))
WRAP(ssize_t, sendfile, sendfile, (int out, int in, off_t *at, size_t len), (out, in, at, len))
WRAP(ssize_t, sendfile64, sendfile, (int out, int in, off64_t *at, size_t len), (out, in, at, len))
WRAP(int, sendmmsg, sendmmsg, (int fd, struct mmsghdr *msgs, unsigned count, int flags),
     (fd, msgs, count, flags))
WRAP(ssize_t, sendmsg, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags))
WRAP(ssize_t, sendto, sendto,
     (int fd, const void *data, size_t len, int flags, const struct sockaddr *addr, socklen_t addr_len),
     (fd, data, len, flags, addr, addr_len))
WRAP(int, setsockopt, setsockopt, (int fd, int level, int name, const void *value, socklen_t len),
     (fd, level, name, value, len))
WRAP(int, shutdown, shutdown, (int fd, int how), (fd, how))
WRAP(int, socket, socket, (int family, int type, int proto), (family, type, proto))
WRAP(int, socketpair, socketpair, (int family, int type, int proto, int fds[2]), (family, type, proto, fds))
WRAP(int, statx, statx, (int fd, const char *path, int flags, unsigned mask, struct statx *st),
     (fd, path, flags, mask, st))
WRAP(ssize_t, write, write, (int fd, const void *data, size_t len), (fd, data, len))
WRAP(ssize_t, writev, writev, (int fd, const struct iovec *iov, int count), (fd, iov, count))

EXPORT int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    enum call which = op == EPOLL_CTL_ADD   ? CALL_epoll_add
                      : op == EPOLL_CTL_MOD ? CALL_epoll_mod
                                            : CALL_epoll_del;
    if (fails(which)) {
        return -1;
    }
    int code = real_epoll_ctl(epoll, op, fd, event);
    if (code == 0) {
        note_watched(epoll, op, fd, event);
    }
    return code;
}

EXPORT int close(int fd)
{
    bool failed = fails(CALL_close);
    int code = (int)syscall(SYS_close, fd);
    if (code < 0 && !exempt) {
        (void)tdl_fetch_add_relaxed_u32(&fault.closed_twice, 1);
    }
    if (failed && code == 0) {
        errno = fault.error;
        return -1;
    }
    return code;
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    if (fails(CALL_pthread_create)) {
        return fault.error;
    }
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (real == NULL) {
        void *found = next("pthread_create");
        memcpy(&real, &found, sizeof real);
    }
    return real(thread, attr, start, arg);
}

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t at)
{
    if (fd >= 0 && fails(CALL_mmap)) { /* rings; memory is the allocators' */
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, at);
}

/* What takes one more argument by the number before it. */
#define WRAP_VARIADIC(name, call, params, args, last)                                                        \
    EXPORT int name params                                                                                   \
    {                                                                                                        \
        va_list list;                                                                                        \
        va_start(list, last);                                                                                \
        long more = va_arg(list, long);                                                                      \
        va_end(list);                                                                                        \
        static int(*real) params;                                                                            \
        if (real == NULL) {                                                                                  \
            void *found = next(#name);                                                                       \
            memcpy(&real, &found, sizeof real);                                                              \
        }                                                                                                    \
        return fails(CALL_##call) ? -1 : real args;                                                          \
    }

WRAP_VARIADIC(fcntl, fcntl, (int fd, int cmd, ...), (fd, cmd, more), cmd)
WRAP_VARIADIC(fcntl64, fcntl, (int fd, int cmd, ...), (fd, cmd, more), cmd)
WRAP_VARIADIC(open, open, (const char *path, int flags, ...), (path, flags, more), flags)
WRAP_VARIADIC(open64, open, (const char *path, int flags, ...), (path, flags, more), flags)
WRAP_VARIADIC(openat, open, (int dir, const char *path, int flags, ...), (dir, path, flags, more), flags)
WRAP_VARIADIC(openat64, open, (int dir, const char *path, int flags, ...), (dir, path, flags, more), flags)

EXPORT int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *more = va_arg(list, void *);
    va_end(list);
    if (request == FIONBIO && fails(CALL_ioctl)) {
        return -1;
    }
    return (int)syscall(SYS_ioctl, fd, request, more);
}

static int call_of(long number)
{
    switch (number) {
    case SYS_io_uring_setup:
        return CALL_io_uring_setup;
    case SYS_io_uring_enter:
        return CALL_io_uring_enter;
    case SYS_io_uring_register:
        return CALL_io_uring_register;
    case SYS_io_setup:
        return CALL_io_setup;
    case SYS_io_submit:
        return CALL_io_submit;
    case SYS_io_getevents:
        return CALL_io_getevents;
    case SYS_openat2:
        return CALL_openat2;
    case SYS_pidfd_open:
        return CALL_pidfd_open;
    default:
        return -1;
    }
}

EXPORT long syscall(long number, ...)
{
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    int which = call_of(number);
    if (which >= 0 && fails((enum call)which)) {
        return -1;
    }
    static long (*real)(long, ...);
    if (real == NULL) {
        void *found = next("syscall");
        memcpy(&real, &found, sizeof real);
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
