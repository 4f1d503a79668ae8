/* Goal (MO-5): of abandon and finish exactly one decides who frees: a job is released once or arrives once,
 * never both, and after close no worker touches the inbox. Method: real workers; each round abandons some
 * jobs while they run, detaches or closes in the middle of the rest, and overwrites the inbox's memory
 * afterwards. */
#include "../../unit/pool/post_box.h"
#include "stall.h"

#include <string.h>

#define JOBS 32u

struct counted {
    struct tdl_job job;
    struct tdl_link done;
    tdl_atomic_u32 released;
    unsigned spin;
};

static tdl_atomic_u32 released_all;

static void spin_work(struct tdl_job *job)
{
    struct counted *counted = TDL_CONTAINER_OF(job, struct counted, job);
    for (unsigned i = 0; i < counted->spin; i++) {
        tdl_cpu_pause();
    }
}

static void count_release(struct tdl_job *job)
{
    struct counted *counted = TDL_CONTAINER_OF(job, struct counted, job);
    TDL_ASSERT(tdl_fetch_add_acq_rel_u32(&counted->released, 1) == 0);
    (void)tdl_fetch_add_acq_rel_u32(&released_all, 1);
}

static unsigned count_left(struct tdl_link *link)
{
    unsigned count = 0;
    for (; link != NULL; link = link->next) {
        count++;
    }
    return count;
}

static void one_round(struct counted jobs[JOBS], unsigned round, bool close_pool, struct tdl_pool *shared)
{
    struct tdl_pool *pool = close_pool ? pool_of(3, 0) : shared;
    struct post_box *box = malloc(sizeof *box);
    unsigned gone = 0;
    TDL_ASSERT(box != NULL);
    post_box_open(box);
    tdl_store_seq_u32(&released_all, 0);
    for (unsigned i = 0; i < JOBS; i++) {
        tdl_job_init(&jobs[i].job, spin_work, count_release);
        tdl_atomic_init_u32(&jobs[i].released, 0);
        jobs[i].spin = (round + i * 5u) % 60u;
        TDL_ASSERT(tdl_pool_submit(pool, &jobs[i].job, 0, &box->inbox, &jobs[i].done) == 0);
    }
    for (unsigned i = 0; i < JOBS; i += 2) {
        gone += tdl_job_abandon(pool, &jobs[i].job) ? 1 : 0;
    }
    tdl_store_seq_u32(&stall_owner_step, gone);
    if (close_pool) {
        tdl_pool_close(pool);
    } else {
        tdl_pool_detach(pool, &box->inbox);
    }
    unsigned arrived = count_left(tdl_inbox_close(&box->inbox));
    tdl_wake_close(&box->wake);
    memset(box, 0xa5, sizeof *box);
    free(box);
    TDL_ASSERT(gone + arrived <= JOBS);
    while (tdl_load_acquire_u32(&released_all) != JOBS - arrived) {
        sched_yield();
    }
    if (close_pool) {
        while (tdl_pool_alive() != 1) {
            sched_yield();
        }
    }
}

int main(void)
{
    static struct counted jobs[JOBS];
    unsigned rounds = stall_rounds(2000);
    stall_watch();
    struct tdl_pool *shared = pool_of(3, 0);
    for (unsigned round = 0; round < rounds; round++) {
        tdl_store_seq_u32(&stall_round, round);
        one_round(jobs, round, round % 4 == 0, shared);
    }
    tdl_pool_close(shared);
    wait_no_pool_alive();
    return 0;
}
