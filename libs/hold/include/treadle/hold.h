/* Small messages that wait a moment for the next one, so that one system call sends both. A thread of the process
 * sends what has waited for two milliseconds, whatever its owner does meanwhile.
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
 * States of a hold, in its word:
 *   NONE  nothing is held
 *   HELD  something is held; whoever makes the word BUSY has it
 *   BUSY  the owner changes what is held, or the thread sends it
 *   SENT  it had to be sent; the owner takes what is left of it, and holds nothing more until tdl_hold_over
 *
 * The owner takes no lock: one locked operation of the processor for each call (MO-9), and a look at the clock when it begins to hold.
 * The thread is started by the first begin, looks every other millisecond while something is held now and then, sleeps without a
 * time limit when nothing has been for some looks, and is gone after the last close and before a fork.
 */
#ifndef TREADLE_HOLD_H
#define TREADLE_HOLD_H

#include "treadle/atomic.h"
#include "treadle/list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How long a message may wait, unless tdl_hold_set_limit says another time. What the kernel takes to wake the thread up comes on top:
 * two milliseconds together, where a processor is free. */
#define TDL_HOLD_LIMIT_NS 1800000u

/* What one owner, a loop, holds. All fields are private to hold. */
struct tdl_hold {
    tdl_atomic_u32 word;     /* the state, and above it how often something has begun to be held */
    tdl_atomic_u64 begun_ns; /* when the first of what is held began to be */
    struct tdl_node entries; /* what is held, oldest first; of whoever has the word */
    struct tdl_held *spare;  /* blocks for the next begin; owner */
    uint32_t spare_count;
    uint32_t seen;        /* the count in the word at the thread's last look; under the lock, as all below */
    uint64_t limit_ns;    /* how long entries may wait */
    struct tdl_node link; /* in the list of open holds */
};

/* What waits for one socket. `owner` is the caller's; the others may be read once it is taken. */
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

/* Sets another time than TDL_HOLD_LIMIT_NS; tests want longer than a busy machine takes.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none; below TDL_HOLD_LIMIT_NS the thread may come that late all the same
 * Cost:    O(1) */
void tdl_hold_set_limit(struct tdl_hold *h, uint64_t limit_ns);

/* Ends a hold; with the last one of the process the thread ends, which is waited for.
 * Thread:  owner
 * Owns:    what is held must have been taken and ended; that is an assertion
 * Errors:  none; closing twice is harmless
 * Cost:    O(1), of the last a thread's end */
void tdl_hold_close(struct tdl_hold *h);

/* Begins to hold for a socket, behind what is held for others, with a copy of its first bytes. With fd_now
 * the thread sends only while the number there is fd: whoever closes it writes another there first.
 * Thread:  owner
 * Owns:    data until it returns; fd and fd_now stay valid until the take; the block is the hold's
 * Errors:  NULL if the hold is late, or there is no memory or no thread: the caller sends at once
 * Cost:    O(len); a wake if the thread sleeps, a thread start if there is none */
struct tdl_held *tdl_hold_begin(struct tdl_hold *h, int fd, const int *fd_now, const void *data, size_t len);

/* Adds a copy of the bytes to what is held.
 * Thread:  owner
 * Owns:    data until it returns
 * Errors:  TDL_EAGAIN if the hold is late, TDL_ENOMEM; nothing has changed, and the caller takes it and sends at once
 * Cost:    O(len), rarely an allocation */
int tdl_held_append(struct tdl_hold *h, struct tdl_held *held, const void *data, size_t len);

/* Returns the oldest of what is held, NULL if nothing is.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
struct tdl_held *tdl_hold_first(struct tdl_hold *h);

/* Takes it out: the thread sends none of it any more.
 * Thread:  owner
 * Owns:    the block is the caller's until it is ended
 * Errors:  none
 * Cost:    O(1); waits for a send of the thread that is under way, which does not block */
void tdl_hold_take(struct tdl_hold *h, struct tdl_held *held);

/* Gives a block that was taken back.
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
 * Cost:    O(1) */
bool tdl_hold_is_late(const struct tdl_hold *h);

/* Forgets that the owner was late; everything that was held has been taken.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
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
