/* Goal (MO-5): over every interleaving of a worker with an owner that cancels, abandons or closes, a job is
 * worked at most once and never after a successful cancel, is freed exactly once, is not touched afterwards,
 * and no post comes after close. Method: the steps of worker.c, job.c and pool.c as two small programs.
 * MUTANT takes an order away; each mutant must be rejected. */
enum {
    MUTANT_NONE,
    MUTANT_START,
    MUTANT_CANCEL,
    MUTANT_GIVE_UP,
    MUTANT_FINISH,
    MUTANT_LOCK,
    MUTANT_LATE,
    MUTANT_DELIVER
};
#ifndef MUTANT
#define MUTANT MUTANT_NONE
#endif

enum { IDLE, WAITING, RUNNING, DONE, CANCELED, ABANDONED };
enum { OWNER, WORKER, PROGRAMS };
enum { CANCEL, ABANDON, CLOSE, VERBS };
enum { NOBODY = PROGRAMS };

struct model {
    unsigned char verb;
    unsigned char pc[PROGRAMS];
    unsigned char half[PROGRAMS]; /* what the first half of a torn operation read */
    unsigned char lock;           /* who holds the pool's lock */
    unsigned char deliver;        /* who holds the worker's */
    unsigned char state;
    unsigned char linked;
    unsigned char worker_has; /* worker->job */
    unsigned char worked;
    unsigned char posted;
    unsigned char freed;
    unsigned char promised_never; /* cancel returned true */
    unsigned char promised_gone;  /* the owner will not receive */
    unsigned char ours;           /* the owner releases */
    unsigned char inbox_gone;
    unsigned char delivers; /* the worker posts */
    unsigned char wrong;    /* 1 use after free, 2 post after close */
};

#include "explore.h"

static void touch(struct model *m)
{
    if (m->freed) {
        m->wrong = 1;
    }
}

static bool take(unsigned char *lock, unsigned program)
{
    if (*lock != NOBODY) {
        return false;
    }
    *lock = (unsigned char)program;
    return true;
}

/* One compare-and-swap; torn, it takes two steps. Returns 0 while only half is done, 1 lost, 2 won. */
static int swap_if(struct model *m, unsigned program, unsigned char from, unsigned char to, bool torn)
{
    touch(m);
    if (torn && m->half[program] == 0xff) {
        m->half[program] = m->state;
        return 0;
    }
    unsigned char before = torn ? m->half[program] : m->state;
    m->half[program] = 0xff;
    if (before != from) {
        return 1;
    }
    m->state = to;
    return 2;
}

/* One exchange, likewise; -1 while only half is done. */
static int exchange(struct model *m, unsigned program, unsigned char to, bool torn)
{
    touch(m);
    if (torn && m->half[program] == 0xff) {
        m->half[program] = m->state;
        return -1;
    }
    int before = torn ? m->half[program] : m->state;
    m->half[program] = 0xff;
    m->state = to;
    return before;
}

static void worker_posts(struct model *m)
{
    touch(m);
    if (m->inbox_gone) {
        m->wrong = 2;
    }
    m->posted = 1;
}

static void worker_lets_go(struct model *m)
{
    m->worker_has = 0;
    if (m->deliver == WORKER) {
        m->deliver = NOBODY;
    }
}

static bool worker_step(struct model *m)
{
    unsigned char *pc = &m->pc[WORKER];
    int outcome;
    switch (*pc) {
    case 0: /* take a job, under the pool's lock */
        if (m->lock != NOBODY) {
            return false;
        }
        m->worker_has = m->linked;
        *pc = m->linked ? 1 : 8;
        m->linked = 0;
        return true;
    case 1: /* tdl__job_start */
        outcome = swap_if(m, WORKER, WAITING, RUNNING, MUTANT == MUTANT_START);
        if (outcome != 0) {
            *pc = outcome == 2 ? 2 : 3;
        }
        return true;
    case 2: /* work */
        touch(m);
        m->worked++;
        *pc = 3;
        return true;
    case 3:
        if (MUTANT != MUTANT_DELIVER && !take(&m->deliver, WORKER)) {
            return false;
        }
        *pc = m->worked ? 4 : 6;
        return true;
    case 4: /* tdl__job_finish */
        outcome = exchange(m, WORKER, DONE, MUTANT == MUTANT_FINISH);
        if (outcome >= 0) {
            m->delivers = outcome == RUNNING;
            *pc = m->delivers ? 5 : 6;
        }
        return true;
    case 5: /* tdl_inbox_post */
        worker_posts(m);
        *pc = 6;
        return true;
    case 6:
        worker_lets_go(m);
        *pc = m->delivers ? 8 : 7;
        return true;
    default: /* release */
        touch(m);
        m->freed++;
        *pc = 8;
        return true;
    }
}

/* False while the other side's half of the step comes first. */
static bool owner_changes_state(struct model *m)
{
    int outcome;
    if (m->verb == CANCEL) {
        outcome = swap_if(m, OWNER, WAITING, CANCELED, MUTANT == MUTANT_CANCEL);
        if (outcome == 0) {
            return false;
        }
        m->promised_never = m->promised_gone = outcome == 2;
    } else {
        outcome = exchange(m, OWNER, ABANDONED, MUTANT == MUTANT_GIVE_UP);
        if (outcome < 0) {
            return false;
        }
        m->promised_gone = outcome != DONE;
    }
    return true;
}

static bool owner_give_up(struct model *m)
{
    unsigned char *pc = &m->pc[OWNER];
    switch (*pc) {
    case 0:
        if (MUTANT != MUTANT_LOCK && !take(&m->lock, OWNER)) {
            return false;
        }
        touch(m);
        m->ours = m->linked;
        *pc = 1;
        return true;
    case 1:
        if (owner_changes_state(m)) {
            *pc = m->ours || MUTANT == MUTANT_LATE ? 2 : 3;
        }
        return true;
    case 2: /* only a job that was linked is touched here: a worker that lost may have freed any other */
        touch(m);
        m->ours = m->linked;
        m->linked = 0;
        *pc = 3;
        return true;
    case 3:
        if (m->lock == OWNER) {
            m->lock = NOBODY;
        }
        *pc = m->ours ? 4 : m->promised_gone ? 6 : 5;
        return true;
    case 4: /* release */
        touch(m);
        m->freed++;
        *pc = 6;
        return true;
    default: /* receive, and free */
        if (!m->posted) {
            return false;
        }
        touch(m);
        m->freed++;
        *pc = 6;
        return true;
    }
}

static bool owner_close(struct model *m)
{
    unsigned char *pc = &m->pc[OWNER];
    switch (*pc) {
    case 0:
        if (!take(&m->lock, OWNER)) {
            return false;
        }
        m->ours = m->promised_gone = m->linked;
        m->linked = 0;
        *pc = m->worker_has ? 1 : 3;
        return true;
    case 1:
        if (MUTANT != MUTANT_DELIVER && !take(&m->deliver, OWNER)) {
            return false;
        }
        *pc = 2;
        return true;
    case 2: {
        int before = m->worker_has ? exchange(m, OWNER, ABANDONED, MUTANT == MUTANT_GIVE_UP) : DONE;
        if (before < 0) {
            return true;
        }
        m->promised_gone = before != DONE;
        if (m->deliver == OWNER) {
            m->deliver = NOBODY;
        }
        *pc = 3;
        return true;
    }
    case 3:
        m->lock = NOBODY;
        *pc = 4;
        return true;
    case 4:
        if (m->ours) {
            touch(m);
            m->freed++;
        }
        *pc = 5;
        return true;
    default: /* close the inbox; what is left in it is freed */
        m->inbox_gone = 1;
        if (m->posted) {
            touch(m);
            m->freed++;
        }
        *pc = 6;
        return true;
    }
}

static bool model_step(struct model *m, unsigned program)
{
    if (program == WORKER) {
        return worker_step(m);
    }
    return m->verb == CLOSE ? owner_close(m) : owner_give_up(m);
}

static bool model_ended(const struct model *m, unsigned program)
{
    return m->pc[program] == (program == WORKER ? 8 : 6);
}

static const char *model_wrong(const struct model *m, bool all_ended)
{
    if (m->wrong == 1) {
        return "the job was touched after it was freed";
    }
    if (m->wrong == 2) {
        return "a post came after close";
    }
    if (m->promised_never && m->worked) {
        return "a canceled job was worked";
    }
    if (m->freed > 1) {
        return "the job was freed twice";
    }
    if (m->promised_gone && m->posted) {
        return "a job given up was posted";
    }
    if (all_ended && m->freed != 1) {
        return "the job was not freed";
    }
    return NULL;
}

int main(void)
{
    for (unsigned char verb = 0; verb < VERBS; verb++) {
        struct model start;
        memset(&start, 0, sizeof start);
        start.verb = verb;
        start.state = WAITING;
        start.linked = 1;
        start.lock = NOBODY;
        start.deliver = NOBODY;
        start.half[OWNER] = start.half[WORKER] = 0xff;
        if (!explore_from(&start, PROGRAMS)) {
            return 1;
        }
    }
    printf("%zu states\n", explore_states);
    explore_forget();
    return 0;
}
