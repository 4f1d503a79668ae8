/* System calls that musl has wrappers for since 1.2.5 only, while what is built for it shall run with
 * 1.2.0 too: there they are made by number. glibc's wrappers stay, since programs put their own in their
 * place. */
#ifndef TREADLE_FILEIO_CALLS_H
#define TREADLE_FILEIO_CALLS_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#ifndef STATX_TYPE
#include <linux/stat.h>
#endif
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 0x00000008
#endif

#ifdef __GLIBC__
#define tdl__preadv2 preadv2
#define tdl__pwritev2 pwritev2
#define tdl__statx statx
#else
/* As in glibc, the older calls serve where no flag asks for the newer ones, which QEMU's user mode does
 * not know. The kernel takes the offset in two words, of which a 64-bit one looks at the first. */
static inline ssize_t tdl__preadv2(int fd, const struct iovec *vector, int count, off_t offset, int flags)
{
    if (flags != 0) {
        return syscall(SYS_preadv2, fd, vector, (long)count, (long)offset, (long)((int64_t)offset >> 32),
                       flags);
    }
    return offset == -1 ? readv(fd, vector, count) : preadv(fd, vector, count, offset);
}

static inline ssize_t tdl__pwritev2(int fd, const struct iovec *vector, int count, off_t offset, int flags)
{
    if (flags != 0) {
        return syscall(SYS_pwritev2, fd, vector, (long)count, (long)offset, (long)((int64_t)offset >> 32),
                       flags);
    }
    return offset == -1 ? writev(fd, vector, count) : pwritev(fd, vector, count, offset);
}

static inline int tdl__statx(int directory_fd, const char *path, int flags, unsigned mask, struct statx *out)
{
    return (int)syscall(SYS_statx, directory_fd, path, flags, mask, out);
}
#endif

#endif
