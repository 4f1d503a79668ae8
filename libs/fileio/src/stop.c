/* The way from a cancel to a call that a worker makes: a word it looks at between two steps, and a
 * descriptor beside which it waits for other programs. The worker makes the descriptor when it first has
 * to wait; the owner closes it with the job. */
#include "internal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* How often a wait looks at the word by itself: with no descriptor to be had, and should somebody have
 * closed it. */
#define LOOK_MS 500
#define LOOK_WITHOUT_MS 20

void tdl__stop_init(struct tdl__stop *s)
{
    tdl_atomic_init_u32(&s->asked, 0);
    tdl_atomic_init_u32(&s->fd, 0);
}

static int descriptor(const struct tdl__stop *s)
{
    return (int)tdl_load_seq_u32(&s->fd) - 1;
}

void tdl__stop_close(struct tdl__stop *s)
{
    int fd = descriptor(s);
    if (fd >= 0) {
        (void)close(fd);
    }
    tdl__stop_init(s);
}

/* MO-1: the word is stored before the descriptor is looked for; a waiter shows its descriptor before it
 * looks at the word. */
void tdl__stop_ask(struct tdl__stop *s)
{
    tdl_store_seq_u32(&s->asked, 1);
    int fd = descriptor(s);
    if (fd >= 0) {
        (void)eventfd_write(fd, 1);
    }
}

bool tdl__stop_is_asked(const struct tdl__stop *s)
{
    return s != NULL && tdl_load_seq_u32(&s->asked) != 0; /* MO-1 */
}

static int descriptor_made(struct tdl__stop *s)
{
    int fd = descriptor(s);
    if (fd >= 0) {
        return fd;
    }
    fd = TDL_SYSCALL(EMFILE, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (fd >= 0) {
        tdl_store_seq_u32(&s->fd, (uint32_t)fd + 1); /* MO-1 */
    }
    return fd;
}

int tdl__stop_wait(struct tdl__stop *s, int fd, short events)
{
    int stop_fd = descriptor_made(s);
    while (!tdl__stop_is_asked(s)) {
        struct pollfd both[] = {{.fd = fd, .events = events, .revents = 0},
                                {.fd = stop_fd, .events = POLLIN, .revents = 0}};
        int ready = poll(both, 2, stop_fd >= 0 ? LOOK_MS : LOOK_WITHOUT_MS);
        if (ready < 0 && errno != EINTR) {
            return -errno;
        }
        if (ready > 0 && both[0].revents != 0 && !tdl__stop_is_asked(s)) {
            return 0;
        }
        /* Nobody asked: the number has gone to somebody else. */
        if (ready > 0 && both[1].revents != 0 && !tdl__stop_is_asked(s)) {
            stop_fd = -1;
        }
    }
    return -ECANCELED;
}
