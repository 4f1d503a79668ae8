/* Goal: many submitters at once never get more jobs running than slots, and no job is left waiting while a
 * slot is free. Method: submitters in threads of their own, each with an inbox, two classes; idle threads
 * leave at once, or after they have lingered, so that growing, lingering, leaving and waking meet. */
#include "../../unit/pool/post_box.h"
#include "stall.h"

#define SUBMITTERS 3u
#define BURST 20u

struct limited {
    struct tdl_job job;
    struct tdl_link done;
    uint32_t job_class;
};

static const uint32_t slots[] = {2, 1};
static tdl_atomic_u32 inside[2];
static tdl_atomic_u32 over;
static struct tdl_pool *pool;
static unsigned rounds;

static void enter_and_leave(struct tdl_job *job)
{
    struct limited *limited = TDL_CONTAINER_OF(job, struct limited, job);
    uint32_t before = tdl_fetch_add_acq_rel_u32(&inside[limited->job_class], 1);
    if (before >= slots[limited->job_class]) {
        (void)tdl_fetch_add_relaxed_u32(&over, 1);
    }
    for (unsigned i = 0; i < 30; i++) {
        tdl_cpu_pause();
    }
    (void)tdl_fetch_sub_acq_rel_u32(&inside[limited->job_class], 1);
}

static void *submitter_main(void *arg)
{
    struct limited *jobs = calloc(BURST, sizeof *jobs);
    struct post_box box;
    TDL_ASSERT(jobs != NULL);
    post_box_open(&box);
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < BURST; i++) {
            tdl_job_init(&jobs[i].job, enter_and_leave, NULL);
            jobs[i].job_class = i % 2;
            TDL_ASSERT(tdl_pool_submit(pool, &jobs[i].job, i % 2, &box.inbox, &jobs[i].done) == 0);
        }
        for (unsigned i = 0; i < BURST; i++) {
            (void)post_box_wait(&box);
        }
        (void)tdl_fetch_add_relaxed_u32(&stall_round, 1);
    }
    post_box_close(&box);
    free(jobs);
    return arg;
}

static void meet(uint64_t linger_ns)
{
    pthread_t threads[SUBMITTERS];
    struct tdl_pool_options options = {.slots = slots, .classes = 2, .idle_ns = 1, .linger_ns = linger_ns};
    TDL_ASSERT(tdl_pool_open(&pool, &options) == 0);
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        TDL_ASSERT(pthread_create(&threads[i], NULL, submitter_main, NULL) == 0);
    }
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        TDL_ASSERT(pthread_join(threads[i], NULL) == 0);
    }
    TDL_ASSERT(tdl_load_acquire_u32(&over) == 0);
    tdl_pool_close(pool);
    wait_no_pool_alive();
}

int main(void)
{
    rounds = stall_rounds(1000);
    stall_watch();
    meet(0);
    meet(5000);
    return 0;
}
