#include "model.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <ucontext.h>

#include "treadle/assert.h"

enum { WORDS = 16, MESSAGES = 40, THREADS = 4, DEPTH = 2048, STACK = 64 * 1024, LOG = 512, MAIN = 3 };

/* What a thread knows: the newest message seen of each word, and how far each thread had come. */
struct view {
    uint8_t seen[WORDS];
    uint16_t clock[THREADS];
};

struct message {
    uint64_t value;
    struct view view;
};

struct word {
    const void *address;
    uint8_t count;
    uint8_t last_seq; /* newest message written by a seq operation */
    bool dead;
    uint16_t touched[THREADS]; /* when each thread last accessed it, by its own clock */
    struct message messages[MESSAGES];
};

/* State is hashed by eight bytes. */
_Static_assert(sizeof(struct message) % 8 == 0 && offsetof(struct word, messages) % 8 == 0, "whole words");

enum wait { RUNNABLE, FOR_WRITE, FOR_EVENTFD, ENDED };

struct thread {
    struct view view;
    uint64_t history; /* hash of everything it has read */
    enum wait wait;
    uint32_t turns; /* how often it was let go, which with the history says where it stands */
};

_Static_assert(sizeof(struct thread) % 8 == 0, "whole words");

static struct {
    struct word words[WORDS];
    struct thread threads[THREADS]; /* the last is the setup and finish */
    unsigned word_count;
    unsigned eventfd_writes;
    int current;
} now;

static struct {
    ucontext_t main;
    ucontext_t contexts[THREADS];
    char stacks[THREADS][STACK];
    void (*bodies[THREADS])(void);
    int thread_count;
    uint16_t chosen[DEPTH], limit[DEPTH];
    int depth, replay;
    const char *violation;
    uint64_t *visited;
    size_t visited_size, visited_used;
    uint64_t executions;
    char log[LOG][96];
    int log_used;
    const void *named[WORDS];
    const char *names[WORDS];
    int name_count;
} explorer;

static uint64_t eventfd_word;

static unsigned choose(unsigned limit)
{
    if (limit == 1) {
        return 0;
    }
    if (explorer.depth == DEPTH) {
        fprintf(stderr, "model: an execution does not end\n");
        exit(2);
    }
    int at = explorer.depth++;
    if (at >= explorer.replay) {
        explorer.chosen[at] = 0;
        explorer.limit[at] = (uint16_t)limit;
    }
    return explorer.chosen[at];
}

/* Moves to the next untried choice; false when all are done. */
static bool advance(void)
{
    int at = explorer.depth - 1;
    while (at >= 0 && explorer.chosen[at] + 1 == explorer.limit[at]) {
        at--;
    }
    if (at < 0) {
        return false;
    }
    explorer.chosen[at]++;
    explorer.replay = at + 1;
    return true;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
        uint64_t part;
        memcpy(&part, at + i, sizeof part);
        hash = (hash ^ part) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash;
}

static uint64_t hash_state(void)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (unsigned i = 0; i < now.word_count; i++) {
        const struct word *word = &now.words[i];
        hash = hash_bytes(hash, word, offsetof(struct word, messages));
        hash = hash_bytes(hash, word->messages, sizeof word->messages[0] * word->count);
    }
    return hash_bytes(hash, now.threads, sizeof now.threads);
}

/* Whether the state is new; remembers it. */
static bool visit(uint64_t hash)
{
    if (explorer.visited_used * 2 >= explorer.visited_size) {
        uint64_t *old = explorer.visited;
        size_t old_size = explorer.visited_size;
        explorer.visited_size = old_size > 0 ? old_size * 2 : 1 << 12;
        explorer.visited = calloc(explorer.visited_size, sizeof *old);
        if (explorer.visited == NULL) {
            exit(2);
        }
        explorer.visited_used = 0;
        for (size_t i = 0; i < old_size; i++) {
            if (old[i] != 0) {
                (void)visit(old[i]);
            }
        }
        free(old);
    }
    hash += hash == 0;
    size_t at = (size_t)hash & (explorer.visited_size - 1);
    while (explorer.visited[at] != 0) {
        if (explorer.visited[at] == hash) {
            return false;
        }
        at = (at + 1) & (explorer.visited_size - 1);
    }
    explorer.visited[at] = hash;
    explorer.visited_used++;
    return true;
}

static struct word *word_at(const void *address)
{
    for (unsigned i = 0; i < now.word_count; i++) {
        if (now.words[i].address == address) {
            return &now.words[i];
        }
    }
    if (now.word_count == WORDS) {
        exit(2);
    }
    struct word *word = &now.words[now.word_count++];
    word->address = address;
    word->count = 1;
    return word;
}

void model_name(const void *address, const char *name)
{
    (void)word_at(address);
    explorer.named[explorer.name_count] = address;
    explorer.names[explorer.name_count++] = name;
}

static const char *name_of(const void *address)
{
    for (int i = 0; i < explorer.name_count; i++) {
        if (explorer.named[i] == address) {
            return explorer.names[i];
        }
    }
    return "?";
}

static void note(const char *operation, const void *address, uint64_t value)
{
    if (explorer.log_used < LOG) {
        (void)snprintf(explorer.log[explorer.log_used++], sizeof explorer.log[0], "  thread %d: %s %s: %llx",
                       now.current, operation, name_of(address), (unsigned long long)value);
    }
}

_Noreturn void model_fail(const char *why)
{
    explorer.violation = why;
    (void)setcontext(&explorer.main);
    abort();
}

void tdl_assert_fail(const char *file, int line, const char *expression)
{
    (void)file;
    (void)line;
    model_fail(expression);
}

static void join(struct view *into, const struct view *from)
{
    for (int i = 0; i < WORDS; i++) {
        if (into->seen[i] < from->seen[i]) {
            into->seen[i] = from->seen[i];
        }
    }
    for (int i = 0; i < THREADS; i++) {
        if (into->clock[i] < from->clock[i]) {
            into->clock[i] = from->clock[i];
        }
    }
}

void model_init(const void *address, uint64_t value)
{
    word_at(address)->messages[0].value = value;
}

/* Lets the explorer pick who goes next, then accounts for one access of the current thread. */
static struct word *step(const void *address)
{
    int self = now.current;
    if (self != MAIN) {
        (void)swapcontext(&explorer.contexts[self], &explorer.main);
    }
    struct word *word = word_at(address);
    if (word->dead) {
        model_fail("an access after the memory is gone");
    }
    word->touched[self] = ++now.threads[self].view.clock[self];
    return word;
}

static bool acquires(enum model_order order)
{
    return order == MODEL_ACQUIRE || order == MODEL_ACQ_REL || order == MODEL_SEQ;
}

static bool releases(enum model_order order)
{
    return order == MODEL_RELEASE || order == MODEL_ACQ_REL || order == MODEL_SEQ;
}

/* Reads message `at` of the word. */
static uint64_t take_in(struct word *word, unsigned at, enum model_order order)
{
    struct thread *self = &now.threads[now.current];
    unsigned index = (unsigned)(word - now.words);

    self->view.seen[index] = (uint8_t)at;
    if (acquires(order)) {
        join(&self->view, &word->messages[at].view);
    }
    self->history = hash_bytes(self->history, &word->messages[at].value, sizeof(uint64_t));
    return word->messages[at].value;
}

static void put_out(struct word *word, uint64_t value, enum model_order order, const struct view *continued)
{
    struct thread *self = &now.threads[now.current];
    unsigned index = (unsigned)(word - now.words);

    if (word->count == MESSAGES) {
        exit(2);
    }
    unsigned at = word->count++;
    struct message *message = &word->messages[at];
    message->value = value;
    self->view.seen[index] = (uint8_t)at;
    if (continued != NULL) {
        message->view = *continued;
    }
    if (releases(order)) {
        join(&message->view, &self->view);
    }
    message->view.seen[index] = (uint8_t)at;
    if (order == MODEL_SEQ) {
        word->last_seq = (uint8_t)at;
    }
}

uint64_t model_load(const void *address, enum model_order order)
{
    struct word *word = step(address);
    unsigned oldest = now.threads[now.current].view.seen[word - now.words];

    if (order == MODEL_SEQ && oldest < word->last_seq) {
        oldest = word->last_seq;
    }
    /* The newest first, so that the first execution is the plain one. */
    unsigned newest = word->count - 1U;
    uint64_t value = take_in(word, newest - choose(newest - oldest + 1), order);
    note("load", address, value);
    return value;
}

void model_store(const void *address, uint64_t value, enum model_order order)
{
    put_out(step(address), value, order, NULL);
    note("store", address, value);
}

static uint64_t modify(struct word *word, enum model_operation operation, uint64_t operand,
                       enum model_order order)
{
    /* A read-modify-write hands on what the message it replaces released. */
    struct view continued = word->messages[word->count - 1].view;
    uint64_t old = take_in(word, word->count - 1U, order), value = operand;

    if (operation == MODEL_ADD) {
        value = old + operand;
    } else if (operation == MODEL_SUB) {
        value = old - operand;
    } else if (operation == MODEL_OR) {
        value = old | operand;
    }
    put_out(word, value, order, &continued);
    return old;
}

uint64_t model_rmw(const void *address, enum model_operation operation, uint64_t operand,
                   enum model_order order)
{
    uint64_t old = modify(step(address), operation, operand, order);
    note("read and write", address, old);
    return old;
}

bool model_cas(const void *address, uint64_t *expected, uint64_t desired, enum model_order order)
{
    struct word *word = step(address);
    uint64_t value = word->messages[word->count - 1].value;
    bool done = value == *expected;

    if (done) {
        (void)modify(word, MODEL_SET, desired, order);
    } else {
        *expected = take_in(word, word->count - 1U, order == MODEL_RELEASE ? MODEL_RELAXED : order);
    }
    note(done ? "cas" : "failed cas", address, value);
    return done;
}

static void wait_for(enum wait what)
{
    struct thread *self = &now.threads[now.current];
    self->wait = what;
    (void)swapcontext(&explorer.contexts[now.current], &explorer.main);
    self->wait = RUNNABLE;
}

void model_pause(void)
{
    wait_for(FOR_WRITE);
    for (unsigned i = 0; i < now.word_count; i++) {
        now.threads[now.current].view.seen[i] = (uint8_t)(now.words[i].count - 1);
    }
}

static void check_ordered(const struct word *word, const char *why)
{
    const struct view *view = &now.threads[now.current].view;
    for (int i = 0; i < THREADS; i++) {
        if (i != now.current && word->touched[i] > view->clock[i]) {
            model_fail(why);
        }
    }
}

void model_plain_write(const void *memory)
{
    struct word *word = word_at(memory);
    check_ordered(word, "a write races with an access");
    word->touched[now.current] = ++now.threads[now.current].view.clock[now.current];
}

void model_plain_read(const void *memory)
{
    check_ordered(word_at(memory), "a read races with a write");
}

void model_kill(const void *address)
{
    struct word *word = word_at(address);
    check_ordered(word, "the memory goes while an access is not ordered before it");
    word->dead = true;
}

unsigned model_eventfd_writes(void)
{
    return now.eventfd_writes;
}

uint64_t model_eventfd_value(void)
{
    const struct word *word = word_at(&eventfd_word);
    return word->messages[word->count - 1].value;
}

int model_eventfd(unsigned value, int flags);
ssize_t model_write(int fd, const void *bytes, size_t size);
ssize_t model_read(int fd, void *bytes, size_t size);
int model_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const void *mask);
int model_close(int fd);
int model_clock_gettime(clockid_t clock, struct timespec *ts);
int model_sched_yield(void);

int model_eventfd(unsigned value, int flags)
{
    (void)flags;
    model_init(&eventfd_word, value);
    model_name(&eventfd_word, "eventfd");
    return 100;
}

ssize_t model_write(int fd, const void *bytes, size_t size)
{
    uint64_t add;
    (void)fd;
    memcpy(&add, bytes, sizeof add);
    (void)model_rmw(&eventfd_word, MODEL_ADD, add, MODEL_ACQ_REL);
    now.eventfd_writes++;
    return (ssize_t)size;
}

ssize_t model_read(int fd, void *bytes, size_t size)
{
    (void)fd;
    uint64_t value = model_rmw(&eventfd_word, MODEL_SET, 0, MODEL_ACQ_REL);
    if (value == 0) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(bytes, &value, sizeof value);
    return (ssize_t)size;
}

int model_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const void *mask)
{
    (void)count;
    (void)timeout;
    (void)mask;
    wait_for(FOR_EVENTFD);
    note("woken by", &eventfd_word, model_eventfd_value());
    fds->revents = POLLIN;
    return 1;
}

int model_close(int fd)
{
    (void)fd;
    return 0;
}

int model_clock_gettime(clockid_t clock, struct timespec *ts)
{
    /* Each look at the clock is a nanosecond later; the thread's own count of steps serves as the time. */
    struct thread *self = &now.threads[now.current];
    (void)clock;
    ts->tv_sec = 0;
    ts->tv_nsec = ++self->view.clock[now.current];
    return 0;
}

int model_sched_yield(void)
{
    model_pause();
    return 0;
}

static void thread_entry(void)
{
    explorer.bodies[now.current]();
    now.threads[now.current].wait = ENDED;
    (void)setcontext(&explorer.main);
}

static void begin(const struct model_scenario *scenario)
{
    memset(&now, 0, sizeof now);
    explorer.depth = 0;
    explorer.log_used = 0;
    explorer.name_count = 0;
    explorer.thread_count = 0;
    now.current = MAIN;
    scenario->setup();
    for (int i = 0; i < MAIN && scenario->threads[i] != NULL; i++) {
        ucontext_t *context = &explorer.contexts[i];
        (void)getcontext(context);
        context->uc_stack.ss_sp = explorer.stacks[i];
        context->uc_stack.ss_size = STACK;
        context->uc_link = NULL;
        makecontext(context, thread_entry, 0);
        explorer.bodies[i] = scenario->threads[i];
        explorer.thread_count++;
        /* What setup did is known to all. */
        now.threads[i].view = now.threads[MAIN].view;
    }
}

static bool can_run(const struct thread *thread)
{
    switch (thread->wait) {
    case RUNNABLE:
        return true;
    case FOR_WRITE:
        for (unsigned i = 0; i < now.word_count; i++) {
            if (now.words[i].count - 1 > thread->view.seen[i]) {
                return true;
            }
        }
        return false;
    case FOR_EVENTFD:
        return model_eventfd_value() > 0;
    case ENDED:
    default:
        return false;
    }
}

static bool all_ended(void)
{
    for (int i = 0; i < explorer.thread_count; i++) {
        if (now.threads[i].wait != ENDED) {
            return false;
        }
    }
    return true;
}

/* Runs one execution to its end, to a violation, or to a state that was explored before. */
static void execute(const struct model_scenario *scenario)
{
    /* A violation in setup comes back here, any other behind swapcontext. */
    (void)getcontext(&explorer.main);
    if (explorer.violation != NULL) {
        return;
    }
    begin(scenario);
    for (;;) {
        unsigned ready[THREADS], count = 0;
        for (unsigned i = 0; i < (unsigned)explorer.thread_count; i++) {
            if (can_run(&now.threads[i])) {
                ready[count++] = i;
            }
        }
        if (count == 0) {
            now.current = MAIN;
            if (!all_ended()) {
                explorer.violation = "every thread sleeps: a wake was lost";
            } else if (scenario->finish != NULL) {
                scenario->finish();
            }
            return;
        }
        if (explorer.depth >= explorer.replay && !visit(hash_state())) {
            return;
        }
        now.current = (int)ready[choose(count)];
        now.threads[now.current].turns++;
        if (swapcontext(&explorer.main, &explorer.contexts[now.current]) != 0) {
            abort();
        }
        if (explorer.violation != NULL) {
            return;
        }
    }
}

static void explore(const struct model_scenario *scenario)
{
    explorer.replay = 0;
    explorer.executions = 0;
    explorer.violation = NULL;
    explorer.visited_used = 0;
    if (explorer.visited != NULL) {
        memset(explorer.visited, 0, explorer.visited_size * sizeof explorer.visited[0]);
    }
    do {
        explorer.executions++;
        execute(scenario);
    } while (explorer.violation == NULL && advance());
}

int model_main(int argc, char **argv, const struct model_scenario *scenarios, size_t count)
{
    bool expected = argc > 1 && strcmp(argv[1], "--expect-violation") == 0;
    bool found = false;

    for (size_t i = 0; i < count; i++) {
        explore(&scenarios[i]);
        printf("%s: %llu executions, %zu states", scenarios[i].name, (unsigned long long)explorer.executions,
               explorer.visited_used);
        if (explorer.violation == NULL) {
            printf(", no violation\n");
            continue;
        }
        found = true;
        printf("\n%s: %s, after:\n", expected ? "caught" : "VIOLATION", explorer.violation);
        for (int at = 0; at < explorer.log_used; at++) {
            printf("%s\n", explorer.log[at]);
        }
    }
    free(explorer.visited);
    if (expected && !found) {
        printf("NOT CAUGHT: the mutant passed every scenario\n");
    }
    return found == expected ? 0 : 1;
}
