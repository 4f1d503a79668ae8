/* Goal: over every interleaving of submitters and threads, no more jobs run and no more threads exist than
 * slots, and no job waits while a slot is free and nobody is on the way to it. Method: the protocol of
 * dispatch in worker.c, each step under the lock being one action. MUTANT takes a rule away; each mutant
 * must be rejected. */
enum {
    MUTANT_NONE,
    MUTANT_NO_CHAIN,
    MUTANT_WAKING_STAYS,
    MUTANT_NO_LIMIT,
    MUTANT_LEAVES_WOKEN,
    MUTANT_SLEEPS_CALLED,
    MUTANT_LINGERING_STAYS
};
#ifndef MUTANT
#define MUTANT MUTANT_NONE
#endif

#define JOBS 4
#define SLOTS 2
#define THREADS 3 /* one more than slots, to see that it is never started */
#define SUBMITTER THREADS
#define PROGRAMS (THREADS + 1)

enum { ABSENT, STARTING, WOKEN, DECIDES, LINGERS, IDLES, WORKS, LOST };

struct model {
    unsigned char thread[THREADS];
    unsigned char submitted;
    unsigned char started; /* jobs leave the queue in order, so a count is the queue */
    unsigned char finished;
    unsigned char running;
    unsigned char waking;
    unsigned char lingering; /* 1 more than the thread that is called without a signal, 0 for none */
    unsigned char most_running;
};

#include "explore.h"

static bool runnable(const struct model *m)
{
    return m->submitted > m->started && (m->running < SLOTS || MUTANT == MUTANT_NO_LIMIT);
}

static void dispatch(struct model *m)
{
    if (m->waking || !runnable(m)) {
        return;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        if (m->thread[i] == LINGERS) {
            m->thread[i] = WOKEN;
            m->waking = 1;
            return;
        }
    }
    for (unsigned i = 0; i < THREADS; i++) {
        if (m->thread[i] == IDLES) {
            m->thread[i] = m->lingering == i + 1 ? LOST : WOKEN;
            m->waking = 1;
            return;
        }
    }
    unsigned limit = MUTANT == MUTANT_NO_LIMIT ? THREADS : SLOTS;
    unsigned alive = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        alive += m->thread[i] != ABSENT;
    }
    for (unsigned i = 0; i < THREADS && alive < limit; i++) {
        if (m->thread[i] == ABSENT) {
            m->thread[i] = STARTING;
            m->waking = 1;
            return;
        }
    }
}

static void look_at_queue(struct model *m, unsigned i)
{
    if (!runnable(m)) {
        m->thread[i] = m->lingering == 0 ? LINGERS : IDLES;
        if (m->lingering == 0) {
            m->lingering = (unsigned char)(i + 1);
        }
        return;
    }
    m->started++;
    m->running++;
    if (m->running > m->most_running) {
        m->most_running = m->running;
    }
    m->thread[i] = WORKS;
    if (MUTANT != MUTANT_NO_CHAIN) {
        dispatch(m);
    }
}

static bool model_step(struct model *m, unsigned program)
{
    if (program == SUBMITTER) {
        m->submitted++;
        dispatch(m);
        return true;
    }
    switch (m->thread[program]) {
    case STARTING:
    case WOKEN:
        if (MUTANT == MUTANT_SLEEPS_CALLED && m->lingering == program + 1) {
            m->lingering = 0;
            m->thread[program] = LOST;
            return true;
        }
        if (m->lingering == program + 1) {
            m->lingering = 0;
        }
        if (MUTANT != MUTANT_WAKING_STAYS) {
            m->waking = 0;
        }
        look_at_queue(m, program);
        return true;
    case WORKS: /* ends at any time; that it may never end is what the check of each state covers */
        m->thread[program] = DECIDES;
        m->running--;
        m->finished++;
        look_at_queue(m, program);
        return true;
    case LINGERS: /* goes to sleep, or does not linger at all */
        m->thread[program] = IDLES;
        if (MUTANT != MUTANT_LINGERING_STAYS) {
            m->lingering = 0;
        }
        return true;
    case IDLES: /* times out */
        m->thread[program] = ABSENT;
        if (MUTANT == MUTANT_LEAVES_WOKEN) {
            m->waking = 1;
        }
        return true;
    default:
        return false;
    }
}

static bool model_ended(const struct model *m, unsigned program)
{
    if (program == SUBMITTER) {
        return m->submitted == JOBS;
    }
    return m->thread[program] == ABSENT && m->submitted == m->started;
}

static const char *model_wrong(const struct model *m, bool all_ended)
{
    unsigned alive = 0;
    bool on_the_way = false;
    for (unsigned i = 0; i < THREADS; i++) {
        alive += m->thread[i] != ABSENT;
        on_the_way = on_the_way || m->thread[i] == STARTING || m->thread[i] == WOKEN;
    }
    if (m->most_running > SLOTS) {
        return "more jobs ran than there are slots";
    }
    if (alive > SLOTS) {
        return "more threads than slots";
    }
    if (runnable(m) && !on_the_way) {
        return "a job waits, a slot is free, and nobody is on the way";
    }
    if (all_ended && m->finished != JOBS) {
        return "a job was not finished";
    }
    return NULL;
}

int main(void)
{
    struct model start;
    memset(&start, 0, sizeof start);
    if (!explore_from(&start, PROGRAMS)) {
        return 1;
    }
    printf("%zu states\n", explore_states);
    explore_forget();
    return 0;
}
