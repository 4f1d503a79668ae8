/* Lookups by getaddrinfo(3) and getnameinfo(3) as jobs of a pool, in a class with bounded slots.
 *
 * The owner embeds the lookup, submits it, and receives its done link from the inbox with the result inside;
 * a lookup that is dropped while libc executes is freed by the worker when libc returns.
 *
 * Example:
 *     struct tdl_lookup lookup;
 *     struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
 *     int status = tdl_lookup_forward(&lookup, "localhost", "80", &hints, NULL);
 *     if (status == 0)
 *         tdl_lookup_clear(&lookup);
 *
 * STATES: those of the job inside, see job.h. */
#ifndef TREADLE_LOOKUP_H
#define TREADLE_LOOKUP_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "treadle/job.h"

#ifdef __cplusplus
extern "C" {
#endif

struct addrinfo; /* netdb.h declares it only with POSIX, not in strict C */
struct tdl_lookup;
typedef void (*tdl_lookup_fn)(struct tdl_lookup *lookup);

#define TDL_LOOKUP_TEXT_INLINE 64

struct tdl_lookup {
    struct tdl_job job;
    tdl_lookup_fn release; /* private */
    int eai;               /* the result: 0 or libc's EAI code */
    int system_errno;      /* with EAI_SYSTEM, the errno that libc left, 0 included */
    struct addrinfo *rows; /* forward: the result, until clear */
    const char *host_name; /* reverse: the result, until clear */
    const char *service_name;
    char *result_text; /* private: memory of the two names */
    const char *node;  /* private: what is asked, NULL allowed */
    const char *service;
    char *text; /* private: memory of the two, when they don't fit inside */
    char text_inline[TDL_LOOKUP_TEXT_INLINE];
    bool reverse;
    int flags;
    socklen_t address_length;
    union {
        struct {
            int flags;
            int family;
            int socktype;
            int protocol;
        } hints;
        struct sockaddr_storage address;
    } ask;
};

/* Prepares a getaddrinfo(3).
 * Thread:  owner
 * Owns:    the texts and hints are copied; the lookup is as its job; release is called once if the lookup is
 *          dropped, on either side, after its contents were cleared, and frees the lookup; NULL for one that
 *          is never dropped
 * Errors:  TDL_ENOMEM; nothing is held then
 * Cost:    O(length), an allocation only for long texts */
int tdl_lookup_forward(struct tdl_lookup *lookup, const char *node, const char *service,
                       const struct addrinfo *hints, tdl_lookup_fn release);

/* Prepares a getnameinfo(3).
 * Thread:  owner
 * Owns:    as tdl_lookup_forward
 * Errors:  TDL_EINVAL for an address longer than sockaddr_storage; nothing is held then
 * Cost:    O(1) */
int tdl_lookup_reverse(struct tdl_lookup *lookup, const struct sockaddr *address, socklen_t length, int flags,
                       tdl_lookup_fn release);

/* Starts the lookup as soon as the class has a slot; also one that was answered or was taken back after a
 * fork.
 * Thread:  owner
 * Owns:    as tdl_pool_submit
 * Errors:  as tdl_pool_submit; the lookup may be submitted again or cleared then
 * Cost:    as tdl_pool_submit */
int tdl_lookup_submit(struct tdl_lookup *lookup, struct tdl_pool *pool, uint32_t job_class,
                      struct tdl_inbox *inbox, struct tdl_link *done);

/* Gives a lookup up: one that waits never reaches libc, one that executes is freed when libc returns.
 * Thread:  owner
 * Owns:    after true the lookup is the pool's, which calls release; after false its link arrives as usual
 * Errors:  false when it was done before
 * Cost:    as tdl_job_abandon */
bool tdl_lookup_drop(struct tdl_lookup *lookup, struct tdl_pool *pool);

/* Tells the result as a status: 0, or TDL_EAI_ and what libc said.
 * Thread:  owner, after the done link was received
 * Owns:    nothing
 * Errors:  it is the error
 * Cost:    O(1) */
int tdl_lookup_status(const struct tdl_lookup *lookup);

/* Frees the texts and the result.
 * Thread:  owner, when the lookup is not with the pool
 * Owns:    the lookup itself stays the caller's and may be prepared anew
 * Errors:  none; may be called twice
 * Cost:    O(rows) frees */
void tdl_lookup_clear(struct tdl_lookup *lookup);

/* Gives the number of slots a lookup class should have: CPUs in this thread's affinity mask plus 4, at most
 * 32.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none; 1 CPU is assumed if the mask can't be read
 * Cost:    one syscall */
uint32_t tdl_lookup_slots(void);

/* Translates libc's EAI code to a status; 0 stays 0, a code unknown here is TDL_EAI_FAIL.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
int tdl_eai_status(int eai);

#ifdef __cplusplus
}
#endif

#endif
