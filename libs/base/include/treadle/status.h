/* Status codes: every call returns 0 or one of these negative numbers. System errors are -errno, the
 * resolver's answers and treadle's own conditions have blocks of their own outside the range of errno.
 *
 * Example:
 *     int rc = TDL_ECLOSED;
 *     if (rc < 0)
 *         printf("%s: %s\n", tdl_status_name(rc), tdl_status_text(rc));
 */
#ifndef TREADLE_STATUS_H
#define TREADLE_STATUS_H

#include <errno.h>

#ifdef __cplusplus
extern "C" {
#endif

/* XX(name without TDL_, value, text); the one list of codes. */
#define TDL_STATUS_MAP(XX)                                                                                   \
    XX(E2BIG, -E2BIG, "argument list too long")                                                              \
    XX(EACCES, -EACCES, "permission denied")                                                                 \
    XX(EADDRINUSE, -EADDRINUSE, "address already in use")                                                    \
    XX(EADDRNOTAVAIL, -EADDRNOTAVAIL, "address not available")                                               \
    XX(EAFNOSUPPORT, -EAFNOSUPPORT, "address family not supported")                                          \
    XX(EAGAIN, -EAGAIN, "resource temporarily unavailable")                                                  \
    XX(EALREADY, -EALREADY, "operation already in progress")                                                 \
    XX(EBADF, -EBADF, "bad file descriptor")                                                                 \
    XX(EBUSY, -EBUSY, "resource busy")                                                                       \
    XX(ECANCELED, -ECANCELED, "operation canceled")                                                          \
    XX(ECONNABORTED, -ECONNABORTED, "connection aborted")                                                    \
    XX(ECONNREFUSED, -ECONNREFUSED, "connection refused")                                                    \
    XX(ECONNRESET, -ECONNRESET, "connection reset by peer")                                                  \
    XX(EEXIST, -EEXIST, "file already exists")                                                               \
    XX(EFAULT, -EFAULT, "bad address")                                                                       \
    XX(EFBIG, -EFBIG, "file too large")                                                                      \
    XX(EHOSTUNREACH, -EHOSTUNREACH, "host is unreachable")                                                   \
    XX(EINPROGRESS, -EINPROGRESS, "operation now in progress")                                               \
    XX(EINTR, -EINTR, "interrupted system call")                                                             \
    XX(EINVAL, -EINVAL, "invalid argument")                                                                  \
    XX(EIO, -EIO, "input/output error")                                                                      \
    XX(EISCONN, -EISCONN, "socket is already connected")                                                     \
    XX(EISDIR, -EISDIR, "is a directory")                                                                    \
    XX(ELOOP, -ELOOP, "too many symbolic links")                                                             \
    XX(EMFILE, -EMFILE, "too many open files")                                                               \
    XX(EMSGSIZE, -EMSGSIZE, "message too long")                                                              \
    XX(ENAMETOOLONG, -ENAMETOOLONG, "name too long")                                                         \
    XX(ENETDOWN, -ENETDOWN, "network is down")                                                               \
    XX(ENETUNREACH, -ENETUNREACH, "network is unreachable")                                                  \
    XX(ENFILE, -ENFILE, "too many open files in the system")                                                 \
    XX(ENOBUFS, -ENOBUFS, "no buffer space available")                                                       \
    XX(ENODEV, -ENODEV, "no such device")                                                                    \
    XX(ENOENT, -ENOENT, "no such file or directory")                                                         \
    XX(ENOMEM, -ENOMEM, "out of memory")                                                                     \
    XX(ENOSPC, -ENOSPC, "no space left on device")                                                           \
    XX(ENOSYS, -ENOSYS, "function not implemented")                                                          \
    XX(ENOTCONN, -ENOTCONN, "socket is not connected")                                                       \
    XX(ENOTDIR, -ENOTDIR, "not a directory")                                                                 \
    XX(ENOTEMPTY, -ENOTEMPTY, "directory not empty")                                                         \
    XX(ENOTSOCK, -ENOTSOCK, "not a socket")                                                                  \
    XX(ENXIO, -ENXIO, "no such device or address")                                                           \
    XX(EOPNOTSUPP, -EOPNOTSUPP, "operation not supported")                                                   \
    XX(EOVERFLOW, -EOVERFLOW, "value too large")                                                             \
    XX(EPERM, -EPERM, "operation not permitted")                                                             \
    XX(EPIPE, -EPIPE, "broken pipe")                                                                         \
    XX(EPROTO, -EPROTO, "protocol error")                                                                    \
    XX(ERANGE, -ERANGE, "result out of range")                                                               \
    XX(EROFS, -EROFS, "read-only file system")                                                               \
    XX(ESPIPE, -ESPIPE, "illegal seek")                                                                      \
    XX(ESRCH, -ESRCH, "no such process")                                                                     \
    XX(ETIMEDOUT, -ETIMEDOUT, "operation timed out")                                                         \
    XX(ETXTBSY, -ETXTBSY, "text file busy")                                                                  \
    XX(EXDEV, -EXDEV, "cross-device link")                                                                   \
    XX(EAI_ADDRFAMILY, -3000, "address family for hostname not supported")                                   \
    XX(EAI_AGAIN, -3001, "temporary failure in name resolution")                                             \
    XX(EAI_BADFLAGS, -3002, "bad value for ai_flags")                                                        \
    XX(EAI_CANCELED, -3003, "request canceled")                                                              \
    XX(EAI_FAIL, -3004, "non-recoverable failure in name resolution")                                        \
    XX(EAI_FAMILY, -3005, "ai_family not supported")                                                         \
    XX(EAI_MEMORY, -3006, "memory allocation failure")                                                       \
    XX(EAI_NODATA, -3007, "no address associated with hostname")                                             \
    XX(EAI_NONAME, -3008, "name or service not known")                                                       \
    XX(EAI_OVERFLOW, -3009, "argument buffer overflow")                                                      \
    XX(EAI_SERVICE, -3010, "service not supported for ai_socktype")                                          \
    XX(EAI_SOCKTYPE, -3011, "ai_socktype not supported")                                                     \
    XX(EAI_SYSTEM, -3012, "system error in name resolution")                                                 \
    XX(ECLOSED, -5000, "object is closed")                                                                   \
    XX(ESTATE, -5001, "object is in a state that does not allow this")                                       \
    XX(EFORKED, -5002, "object belongs to the parent process")

enum tdl_status {
    TDL_OK = 0,
#define TDL__STATUS_ENUM(name, value, text) TDL_##name = (value),
    TDL_STATUS_MAP(TDL__STATUS_ENUM)
#undef TDL__STATUS_ENUM
};

/* Returns the name of a status, e.g. "ECLOSED"; "OK" for 0 and above, "UNKNOWN" for a code not listed.
 * Thread:  any, signal-safe
 * Owns:    the string is static
 * Errors:  none
 * Cost:    O(number of codes), no allocation */
const char *tdl_status_name(int status);

/* Returns the English text of a status; "success" for 0 and above, "unknown error" for a code not listed.
 * Thread:  any, signal-safe
 * Owns:    the string is static
 * Errors:  none
 * Cost:    O(number of codes), no allocation */
const char *tdl_status_text(int status);

#ifdef __cplusplus
}
#endif

#endif
