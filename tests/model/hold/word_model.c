/* Goal: over every interleaving of the owner of a hold and the thread that sends (MO-9), one of them at a
 * time has what is held, each byte is sent once and in order, and the thread never sleeps while something
 * is held that nobody will look at. Method: the protocol of hold.c and sender.c, each access to the word
 * or to the thread's state being one action, with a store buffer on each side for what is no seq access.
 * MUTANT takes a rule away; each mutant must be rejected. */
enum {
    MUTANT_NONE,
    MUTANT_ENTER_LOOKS_AND_STORES,
    MUTANT_TAKE_DOES_NOT_WAIT,
    MUTANT_BEGIN_RELEASES,
    MUTANT_SLEEP_RELEASES,
    MUTANT_SLEEP_DOES_NOT_LOOK,
    MUTANT_THREAD_FORGETS_WHAT_IT_SENT
};
#ifndef MUTANT
#define MUTANT MUTANT_NONE
#endif

#define STEPS 3 /* of the owner's program; each holds two bytes, and may go on for ever */

enum { OWNER, THREAD, TIME, OWNER_BUFFER, THREAD_BUFFER, PROGRAMS };
enum { NONE, HELD, BUSY, SENT };
enum { AWAKE, ASLEEP };
enum {
    BEGINS,
    LOOKS_AT_THREAD,
    ROUSES,
    APPENDS,
    STORES_FOR_APPEND,
    COPIES,
    WORKS,
    TAKES,
    SENDS,
    IS_OVER,
    HAS_ENDED
};
enum { LOOKS, ENTERS, STORES_FOR_SEND, SENDS_LATE, WAITS_A_WHILE, FALLS_ASLEEP, LOOKS_AGAIN, SLEEPS };

struct model {
    unsigned char owner, thread; /* where they are */
    unsigned char steps;
    unsigned char word, count;          /* the hold's word, and the count above its state */
    unsigned char state;                /* of the thread, as owners see it */
    unsigned char begun, asleep;        /* stores that wait in the owner's buffer, and in the thread's */
    unsigned char seen, idle, signaled; /* the thread's */
    unsigned char len, sent;            /* of what is held */
    unsigned char owner_in, thread_in;
    unsigned char more;          /* a byte that could not be held: it is sent behind what was */
    unsigned char written, wire; /* bytes of the program, and bytes that the peer has */
    unsigned char twice;
};

#include "../pool/explore.h"

static void send_bytes(struct model *m, unsigned first, unsigned count)
{
    m->twice = m->twice || first != m->wire;
    m->wire = (unsigned char)(m->wire + count);
}

static unsigned first_held(const struct model *m)
{
    return (unsigned)m->written - m->more - m->len;
}

static bool take_buffered(unsigned char *stored)
{
    bool was = *stored != 0;
    *stored = 0;
    return was;
}

static void store_begun(struct model *m)
{
    if (take_buffered(&m->begun)) {
        m->word = HELD;
        m->count++;
    }
}

static void store_asleep(struct model *m)
{
    if (take_buffered(&m->asleep)) {
        m->state = ASLEEP;
    }
}

static bool has_lock(const struct model *m)
{
    return m->thread != WAITS_A_WHILE && m->thread != SLEEPS;
}

static void owner_begins(struct model *m)
{
    m->len = 1;
    m->sent = 0;
    m->written++;
    m->begun = 1;
    if (MUTANT != MUTANT_BEGIN_RELEASES) {
        store_begun(m);
    }
    m->owner = LOOKS_AT_THREAD;
}

/* Makes the word BUSY, or NONE for the owner that takes it; false while the other side has it. */
static bool owner_enters(struct model *m, unsigned word, unsigned inside, unsigned late)
{
    store_begun(m); /* it sees its own store */
    if (m->word == BUSY && !(MUTANT == MUTANT_TAKE_DOES_NOT_WAIT && word == NONE)) {
        return false;
    }
    if (m->word == HELD && MUTANT == MUTANT_ENTER_LOOKS_AND_STORES && word == BUSY) {
        m->owner = STORES_FOR_APPEND;
        return true;
    }
    m->owner_in = m->word != SENT;
    m->owner = (unsigned char)(m->word == SENT ? late : inside);
    m->word = (unsigned char)(m->word == SENT ? SENT : word);
    return true;
}

static void owner_sends(struct model *m)
{
    unsigned first = first_held(m) + m->sent;
    send_bytes(m, first, m->written - first);
    m->len = m->more = 0;
    m->owner_in = 0;
    m->owner = IS_OVER;
}

static void owner_is_over(struct model *m)
{
    if (m->word == SENT) {
        m->word = NONE;
    }
    m->owner = ++m->steps == STEPS ? HAS_ENDED : BEGINS;
}

static bool owner_step(struct model *m)
{
    switch (m->owner) {
    case BEGINS:
        owner_begins(m);
        return true;
    case LOOKS_AT_THREAD:
        m->owner = m->state == AWAKE ? APPENDS : ROUSES;
        return true;
    case ROUSES:
        if (has_lock(m)) {
            return false;
        }
        store_begun(m);
        m->signaled = m->state == ASLEEP;
        m->state = AWAKE;
        m->owner = APPENDS;
        return true;
    case APPENDS:
        if (!owner_enters(m, BUSY, COPIES, TAKES)) {
            return false;
        }
        m->more = m->owner == TAKES;
        m->written += m->more;
        return true;
    case STORES_FOR_APPEND:
        m->word = BUSY;
        m->owner_in = 1;
        m->owner = COPIES;
        return true;
    case COPIES:
        m->len++;
        m->written++;
        m->owner_in = 0;
        m->word = HELD;
        m->owner = WORKS;
        return true;
    case WORKS: /* ends at any time; that it may never end is what the check of each state covers */
        m->owner = TAKES;
        return true;
    case TAKES:
        return owner_enters(m, NONE, SENDS, SENDS);
    case SENDS:
        owner_sends(m);
        return true;
    case IS_OVER:
        owner_is_over(m);
        return true;
    default:
        return false;
    }
}

static void thread_looks(struct model *m)
{
    bool news = m->count != m->seen || m->word == HELD || m->word == BUSY;
    m->seen = m->count;
    m->idle = news ? 0 : 1;
    m->thread = m->idle ? FALLS_ASLEEP : WAITS_A_WHILE;
}

static bool thread_enters(struct model *m)
{
    if (m->word == BUSY) {
        return false;
    }
    if (m->word != HELD) {
        m->thread = WAITS_A_WHILE;
    } else if (MUTANT == MUTANT_ENTER_LOOKS_AND_STORES) {
        m->thread = STORES_FOR_SEND;
    } else {
        m->word = BUSY;
        m->thread_in = 1;
        m->thread = SENDS_LATE;
    }
    return true;
}

static bool thread_step(struct model *m)
{
    switch (m->thread) {
    case LOOKS:
        thread_looks(m);
        return true;
    case ENTERS:
        return thread_enters(m);
    case STORES_FOR_SEND:
        m->word = BUSY;
        m->thread_in = 1;
        m->thread = SENDS_LATE;
        return true;
    case SENDS_LATE:
        send_bytes(m, first_held(m) + m->sent, (unsigned)m->len - m->sent);
        m->sent = MUTANT == MUTANT_THREAD_FORGETS_WHAT_IT_SENT ? 0 : m->len;
        m->thread_in = 0;
        m->word = SENT;
        m->thread = WAITS_A_WHILE;
        return true;
    case WAITS_A_WHILE:
        m->thread = LOOKS;
        return true;
    case FALLS_ASLEEP:
        m->asleep = 1;
        if (MUTANT != MUTANT_SLEEP_RELEASES) {
            store_asleep(m);
        }
        m->thread = LOOKS_AGAIN;
        return true;
    case LOOKS_AGAIN:
        if (m->count != m->seen && MUTANT != MUTANT_SLEEP_DOES_NOT_LOOK) {
            store_asleep(m);
            m->state = AWAKE;
            m->thread = LOOKS;
        } else {
            m->thread = SLEEPS;
        }
        return true;
    case SLEEPS:
        if (!m->signaled) {
            return false;
        }
        m->signaled = 0;
        m->thread = LOOKS;
        return true;
    default:
        return false;
    }
}

/* What was found waits for long enough. */
static bool time_step(struct model *m)
{
    if (m->thread != LOOKS || m->word != HELD) {
        return false;
    }
    m->seen = m->count;
    m->idle = 0;
    m->thread = ENTERS;
    return true;
}

static bool model_step(struct model *m, unsigned program)
{
    bool stored = program == OWNER_BUFFER ? m->begun != 0 : m->asleep != 0;
    switch (program) {
    case OWNER:
        return owner_step(m);
    case THREAD:
        return thread_step(m);
    case TIME:
        return time_step(m);
    case OWNER_BUFFER:
        store_begun(m);
        return stored;
    default:
        store_asleep(m);
        return stored;
    }
}

static bool model_ended(const struct model *m, unsigned program)
{
    switch (program) {
    case OWNER:
    case TIME:
        return m->owner == HAS_ENDED;
    case THREAD:
        return m->owner == HAS_ENDED && m->thread == SLEEPS;
    case OWNER_BUFFER:
        return m->begun == 0;
    default:
        return m->asleep == 0;
    }
}

static const char *model_wrong(const struct model *m, bool all_ended)
{
    if (m->owner_in && m->thread_in) {
        return "both have what is held";
    }
    if (m->twice) {
        return "bytes were sent twice, or in another order";
    }
    if (m->owner == WORKS && m->word == HELD && m->thread == SLEEPS && !m->signaled && !m->asleep) {
        return "something is held, and the thread sleeps";
    }
    return all_ended && m->wire != m->written ? "bytes were lost" : NULL;
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
