/* Write batching: small messages are held for a moment, so that one system call sends several. A thread of
 * the process sends those that have waited for two milliseconds, whatever their owner does meanwhile.
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
 *   NONE  no message is held
 *   HELD  messages are held; the side that moves the word to BUSY may touch them
 *   BUSY  the owner changes the held messages, or the thread sends them
 *   SENT  the thread has sent them; the owner takes what is left, and holds no more until tdl_hold_over
 *
 * The owner takes no lock: one locked operation of the processor for each call (MO-9), and a look at the
 * clock when it begins to hold. The thread is started by the first begin, looks every other millisecond
 * while something is held now and then, sleeps without a time limit when nothing has been for some looks,
 * and is gone after the last close and before a fork.
 */
#ifndef TREADLE_HOLD_H
#define TREADLE_HOLD_H

#include "treadle/atomic.h"
#include "treadle/list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How long a message may wait, unless tdl_hold_set_limit says another time. What the kernel takes to wake
 * the thread up comes on top: two milliseconds together, where a processor is free. */
#define TDL_HOLD_LIMIT_NS 1800000u

/* The messages that one owner, a loop, holds. All fields are private to hold. */
struct tdl_hold {
    tdl_atomic_u32 word;     /* the state, and above it how often something has begun to be held */
    tdl_atomic_u64 begun_ns; /* when the first of what is held began to be */
    struct tdl_node entries; /* held messages, oldest first; of the side that made the word BUSY */
    struct tdl_held *spare;  /* blocks for the next begin; owner */
    uint32_t spare_count;
    uint32_t seen;        /* the count in the word at the thread's last look; under the lock, as all below */
    uint64_t limit_ns;    /* how long entries may wait */
    struct tdl_node link; /* in the list of open holds */
};

/* The held bytes of one socket. `owner` is the caller's; the other fields may be read once the block is
 * taken. */
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

/* Makes an empty hold.
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
 * Owns:    all held blocks must have been taken and ended; that is an assertion
 * Errors:  none; closing twice is harmless
 * Cost:    O(1), of the last a thread's end */
void tdl_hold_close(struct tdl_hold *h);

/* Begins to hold bytes for a socket, behind those of others, with a copy of the first ones. With fd_now
 * the thread sends only while the number there is fd: before fd is closed another one must be written
 * there.
 * Thread:  owner
 * Owns:    data until it returns; fd and fd_now stay valid until the take; the block is the hold's
 * Errors:  NULL if the hold is late, or there is no memory or no thread: the caller sends at once
 * Cost:    O(len); a wake if the thread sleeps, a thread start if there is none */
struct tdl_held *tdl_hold_begin(struct tdl_hold *h, int fd, const int *fd_now, const void *data, size_t len);

/* Adds a copy of the bytes to a held block.
 * Thread:  owner
 * Owns:    data until it returns
 * Errors:  TDL_EAGAIN if the hold is late, TDL_ENOMEM; nothing has changed, and the caller takes the block
 *          and sends at once
 * Cost:    O(len), rarely an allocation */
int tdl_held_append(struct tdl_hold *h, struct tdl_held *held, const void *data, size_t len);

/* Returns the oldest held block, NULL if there is none.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
struct tdl_held *tdl_hold_first(struct tdl_hold *h);

/* Takes a block out: the thread sends none of it any more.
 * Thread:  owner
 * Owns:    the block is the caller's until it is ended
 * Errors:  none
 * Cost:    O(1); waits for a send of the thread that is under way, which does not block */
void tdl_hold_take(struct tdl_hold *h, struct tdl_held *held);

/* Returns a block that was taken to the hold.
 * Thread:  owner
 * Owns:    the block is the hold's
 * Errors:  none
 * Cost:    O(1) */
void tdl_hold_end(struct tdl_hold *h, struct tdl_held *held);

/* Says whether what was held had to be sent since the last tdl_hold_over: the owner is slow, or a fork
 * came between, and nothing more is held.
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

/* Sends all that any hold of the process holds now, for a caller that is about to end the process or to
 * replace it.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none; what a socket does not take stays held
 * Cost:    O(held), a system call each */
void tdl_hold_send_all(void);

#ifdef __cplusplus
}
#endif

#endif
