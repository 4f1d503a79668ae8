/* Small messages that wait a moment for the next one, so that one system call sends both. A thread of the process
 * sends what has waited for a millisecond, whatever its owner does meanwhile.
 *
 * Example:
 *     struct tdl_hold hold;
 *     tdl_hold_init(&hold);
 *     struct tdl_held *held = tdl_hold_begin(&hold, 1, NULL, "head", 4);
 *     if (held != NULL && tdl_held_append(&hold, held, "body", 4) == 0) {
 *         tdl_hold_take(&hold, held);
 *         printf("%u left\n", held->len - held->sent);
 *     }
 *     if (held != NULL)
 *         tdl_hold_end(&hold, held);
 *     tdl_hold_close(&hold);
 *
 * States of a struct tdl_held:
 *   HELD   from begin to take: appended to by the owner, sent by the thread when it is late
 *   TAKEN  from take to end: the owner's alone; it sends what the thread has not sent
 *
 * One lock of the process orders the owners and the thread. The thread is started by the first begin, sleeps
 * without a time limit while nothing is held, and is gone after the last close and before a fork.
 */
#ifndef TREADLE_HOLD_H
#define TREADLE_HOLD_H

#include "treadle/atomic.h"
#include "treadle/list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How long a message waits before the thread sends it, unless tdl_hold_set_limit says another time. */
#define TDL_HOLD_LIMIT_NS 1000000u

/* What one owner, a loop, holds. All fields are private to hold. */
struct tdl_hold {
    struct tdl_node entries; /* what is HELD, oldest first; changed by the owner under the lock */
    struct tdl_node busy;    /* in the list of holds with entries */
    uint64_t since_ns;       /* when the first entry began, behind none */
    uint64_t limit_ns;       /* how long entries wait */
    tdl_atomic_u32 late;     /* the thread has sent; nothing more should wait until tdl_hold_over */
    struct tdl_held *spare;  /* blocks for the next begin; owner */
    uint32_t spare_count;
};

/* What waits for one socket. `owner` is the caller's; the others may be read once it is TAKEN. */
struct tdl_held {
    struct tdl_node node;
    char *data;
    uint32_t len;   /* bytes appended */
    uint32_t sent;  /* of them, bytes the thread has sent */
    uint32_t count; /* appends */
    uint32_t cap;
    int error; /* errno of the thread's failed send, else 0; a full socket is no failure */
    int fd;
    const int *fd_now; /* where the owner of the descriptor keeps its number, or NULL */
    void *owner;
};

/* Makes a hold that holds nothing.
 * Thread:  owner
 * Owns:    the caller keeps the hold until it has closed it
 * Errors:  none
 * Cost:    O(1) */
void tdl_hold_init(struct tdl_hold *h);

/* Sets how long what is held may wait before the thread sends it; tests want longer than a busy machine takes.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none; below TDL_HOLD_LIMIT_NS the thread may come that late all the same
 * Cost:    O(1) */
void tdl_hold_set_limit(struct tdl_hold *h, uint64_t limit_ns);

/* Ends a hold; with the last one of the process the thread ends, which is waited for.
 * Thread:  owner
 * Owns:    what is HELD must have been taken and ended; that is an assertion
 * Errors:  none; closing twice is harmless
 * Cost:    O(1), of the last a thread's end */
void tdl_hold_close(struct tdl_hold *h);

/* Begins to hold for a socket, behind what is held for others, with a copy of its first bytes. With fd_now
 * the thread sends only while the number there is fd: whoever closes it writes another there first.
 * Thread:  owner
 * Owns:    data until it returns; fd and fd_now stay valid until the take; the block is the hold's
 * Errors:  NULL if the hold is late, or there is no memory or no thread: the caller sends at once
 * Cost:    O(len), one clock reading for the first; a wake if the thread sleeps, a thread start if there is none */
struct tdl_held *tdl_hold_begin(struct tdl_hold *h, int fd, const int *fd_now, const void *data, size_t len);

/* Adds a copy of the bytes to what is HELD.
 * Thread:  owner
 * Owns:    data until it returns
 * Errors:  TDL_EAGAIN if the hold is late, TDL_ENOMEM; nothing has changed, and the caller takes it and sends at once
 * Cost:    O(len), rarely an allocation */
int tdl_held_append(struct tdl_hold *h, struct tdl_held *held, const void *data, size_t len);

/* Returns the oldest of what is HELD, NULL if nothing is.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1), without the lock */
struct tdl_held *tdl_hold_first(struct tdl_hold *h);

/* Makes it TAKEN: the thread sends none of it any more.
 * Thread:  owner
 * Owns:    the block is the caller's until it is ended
 * Errors:  none
 * Cost:    O(1); waits for a send of the thread that is under way, which does not block */
void tdl_hold_take(struct tdl_hold *h, struct tdl_held *held);

/* Gives a block that is TAKEN back.
 * Thread:  owner
 * Owns:    the block is the hold's
 * Errors:  none
 * Cost:    O(1) */
void tdl_hold_end(struct tdl_hold *h, struct tdl_held *held);

/* Says whether what was held had to be sent since the last tdl_hold_over: the owner is slow, or a fork came between, and
 * nothing more is held.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1), without the lock */
bool tdl_hold_is_late(const struct tdl_hold *h);

/* Forgets that the owner was late; everything that was HELD has been taken.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1), without the lock */
void tdl_hold_over(struct tdl_hold *h);

/* Sends all that any hold of the process holds now, for a caller that is about to end the process or to replace it.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none; what a socket does not take stays held
 * Cost:    O(held), a system call each */
void tdl_hold_send_all(void);

#ifdef __cplusplus
}
#endif

#endif
