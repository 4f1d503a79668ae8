#include "data.h"

#include "common/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct data_files data_files = {.folder = ".", .folder_fd = -1, .data_fd = -1, .small_fd = -1};

static char chunk[1 << 20];

int data_warm(int fd, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += sizeof chunk) {
        if (pread(fd, chunk, sizeof chunk, (off_t)at) < 0) {
            return -errno;
        }
    }
    return 0;
}

static int fill_file(int fd, size_t bytes)
{
    memset(chunk, 'a', sizeof chunk);
    if (ftruncate(fd, 0) != 0) {
        return -errno;
    }
    for (size_t at = 0; at < bytes; at += sizeof chunk) {
        ssize_t n = pwrite(fd, chunk, sizeof chunk, (off_t)at);
        if (n != (ssize_t)sizeof chunk) {
            return n < 0 ? -errno : -ENOSPC;
        }
    }
    return fsync(fd) == 0 ? 0 : -errno;
}

int data_open_unnamed(void)
{
    char name[] = ".treadle-fileio-XXXXXX";
    char path[PATH_BYTES + sizeof name];
    int fd = openat(data_files.folder_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) {
        return fd;
    }
    /* Some file systems know no unnamed files. */
    (void)snprintf(path, sizeof path, "%s/%s", data_files.folder, name);
    tdl_stop_guard();
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) {
        (void)unlink(path);
    }
    tdl_stop_unguard();
    return fd;
}

/* Makes the data file once for all cases. One that was kept is used again if its size is right. */
int data_open(size_t bytes)
{
    if (data_files.data_fd >= 0) {
        return 0;
    }
    int fd = data_files.keep != 0
                 ? openat(data_files.folder_fd, DATA_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
                 : data_open_unnamed();
    if (fd < 0) {
        return -errno;
    }
    int code = lseek(fd, 0, SEEK_END) == (off_t)bytes ? 0 : fill_file(fd, bytes);
    if (code == 0) {
        data_files.data_fd = fd;
    } else {
        (void)close(fd);
    }
    return code;
}

/* Opens the data file once more: direct access is a property of the opening. */
int data_open_again(int flags)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", data_files.data_fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | flags);
    return fd < 0 ? -errno : fd;
}

static int make_small_folder(void)
{
    int code = 0;
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/treadle-fileio-XXXXXX", data_files.folder) >= PATH_BYTES) {
        return -ENAMETOOLONG;
    }
    tdl_stop_guard();
    if (mkdtemp(path) == NULL) {
        code = -errno;
    } else {
        memcpy(data_files.small, path, sizeof path);
    }
    tdl_stop_unguard();
    if (code == 0) {
        data_files.small_fd = open(data_files.small, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        code = data_files.small_fd < 0 ? -errno : 0;
    }
    return code;
}

void data_name_small(char name[24], size_t number)
{
    (void)snprintf(name, 24, "small-%u", (unsigned)(number % SMALL_FILES));
}

static int make_small_file(size_t number)
{
    char bytes[SMALL_BYTES];
    char name[24];
    memset(bytes, 'b', sizeof bytes);
    data_name_small(name, number);
    tdl_stop_guard();
    int fd = openat(data_files.small_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int code = fd < 0 ? -errno : 0;
    tdl_stop_unguard();
    if (code != 0) {
        return code;
    }
    ssize_t n = write(fd, bytes, sizeof bytes);
    if (n != (ssize_t)sizeof bytes) {
        code = n < 0 ? -errno : -ENOSPC;
    }
    (void)close(fd);
    return code;
}

int data_make_small(void)
{
    if (data_files.small_fd >= 0) {
        return 0;
    }
    int code = make_small_folder();
    for (size_t i = 0; i < SMALL_FILES && code == 0; i++) {
        code = make_small_file(i);
    }
    return code;
}

/* Called once, at the end. The descriptors end with the process: a case may still use them. */
void data_remove(void)
{
    if (data_files.small[0] == '\0') {
        return;
    }
    for (size_t i = 0; i < SMALL_FILES; i++) {
        char name[24];
        data_name_small(name, i);
        (void)unlinkat(data_files.small_fd, name, 0);
    }
    (void)rmdir(data_files.small);
}
