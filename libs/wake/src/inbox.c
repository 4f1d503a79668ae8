#include "treadle/inbox.h"

#include <sched.h>

#include "treadle/assert.h"
#include "treadle/status.h"

#define TDL__INBOX_CLOSED (UINT32_C(1) << 31)
/* Looks at the gate before the closing thread gives its processor to a poster that was preempted. */
#define INBOX_CLOSE_SPINS 100

void tdl_inbox_init(struct tdl_inbox *in, struct tdl_wake *wake, const tdl_atomic_u32 *mark_source)
{
    tdl_atomic_init_ptr(&in->head, NULL);
    tdl_atomic_init_u32(&in->gate, 0);
    in->wake = wake;
    in->mark_source = mark_source;
}

static void inbox_push(struct tdl_inbox *in, struct tdl_link *link)
{
    void *head = tdl_load_relaxed_ptr(&in->head);

    do {
        link->next = (struct tdl_link *)head;
    } while (!tdl_cas_seq_ptr(&in->head, &head, link)); /* MO-1, notifier: work, before the wake's word */
}

int tdl_inbox_post(struct tdl_inbox *in, struct tdl_link *link)
{
    uint32_t gate = tdl_fetch_add_acq_rel_u32(&in->gate, 1); /* MO-3, poster: enter, then look */

    if ((gate & TDL__INBOX_CLOSED) != 0) {
        (void)tdl_fetch_sub_release_u32(&in->gate, 1);
        return TDL_ECLOSED;
    }
    /* MO-4: the mark is read, and written to the link, before the push publishes the link. */
    link->mark = in->mark_source != NULL ? tdl_load_relaxed_u32(in->mark_source) : 0;
    inbox_push(in, link);
    tdl_wake_notify(in->wake);
    (void)tdl_fetch_sub_release_u32(&in->gate, 1); /* MO-3, poster: leave, nothing is touched after it */
    return TDL_OK;
}

/* Reverses a chain, so that the oldest comes first. */
static struct tdl_link *inbox_oldest_first(struct tdl_link *newest)
{
    struct tdl_link *oldest = NULL;

    while (newest != NULL) {
        struct tdl_link *older = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = older;
    }
    return oldest;
}

struct tdl_link *tdl_inbox_take(struct tdl_inbox *in)
{
    if (tdl_inbox_is_empty(in)) {
        return NULL;
    }
    return inbox_oldest_first((struct tdl_link *)tdl_exchange_seq_ptr(&in->head, NULL));
}

bool tdl_inbox_is_empty(const struct tdl_inbox *in)
{
    return tdl_load_seq_ptr(&in->head) == NULL; /* MO-1, parker: work, after the wake's word */
}

struct tdl_link *tdl_inbox_close(struct tdl_inbox *in)
{
    uint32_t gate = tdl_fetch_or_acq_rel_u32(&in->gate, TDL__INBOX_CLOSED); /* MO-3, closer: bit, then wait */

    for (int spins = 0; (gate & ~TDL__INBOX_CLOSED) != 0; spins++) {
        if (spins < INBOX_CLOSE_SPINS) {
            tdl_cpu_pause();
        } else {
            (void)sched_yield();
        }
        gate = tdl_load_acquire_u32(&in->gate);
    }
    in->wake = NULL;
    in->mark_source = NULL;
    return tdl_inbox_take(in);
}

void tdl_inbox_after_fork(struct tdl_inbox *in)
{
    uint32_t closed = tdl_load_relaxed_u32(&in->gate) & TDL__INBOX_CLOSED;
    tdl_store_relaxed_u32(&in->gate, closed);
}
