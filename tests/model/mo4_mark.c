/* Goal: a remote item runs behind each local item its poster knew of, and before each local item pushed by
 * someone who knew of the post (MO-4). Method: explore the real scheduler against a poster, with the
 * knowledge passed by a word of its own. */
#include "model.h"

#include "treadle/inbox.h"
#include "treadle/sched.h"
#include "treadle/wake.h"

static struct tdl_wake wake;
static struct tdl_inbox inbox;
static struct tdl_sched sched;
static tdl_atomic_u32 told;
static struct tdl_item before, after, remote;
static char order[4];
static unsigned ran;

static void run_item(struct tdl_item *item)
{
    order[ran++] = item == &before ? 'b' : item == &after ? 'a' : 'r';
}

static void setup(void)
{
    (void)tdl_wake_open(&wake, NULL);
    tdl_sched_init(&sched);
    tdl_inbox_init(&inbox, &wake, tdl_sched_mark_source(&sched));
    tdl_atomic_init_u32(&told, 0);
    tdl_item_init(&before, run_item);
    tdl_item_init(&after, run_item);
    tdl_item_init(&remote, run_item);
    model_name(&sched.pushed, "sched.pushed");
    model_name(&inbox.head, "inbox.head");
    model_name(&inbox.gate, "inbox.gate");
    model_name(&wake.state, "wake.state");
    model_name(&told, "told");
    model_name(&remote.link, "remote item");
    ran = 0;
}

static void turn(void)
{
    struct tdl_link *list = tdl_inbox_take(&inbox);
    for (const struct tdl_link *link = list; link != NULL; link = link->next) {
        model_plain_read(link);
    }
    tdl_sched_merge(&sched, list);
    MODEL_CHECK(tdl_sched_check(&sched));
    (void)tdl_sched_freeze(&sched);
    (void)tdl_sched_run(&sched);
}

static void wait_until_told(void)
{
    while (tdl_load_acquire_u32(&told) == 0) {
        model_pause();
    }
}

/* The poster learns of the local item, then posts. */
static void loop_tells(void)
{
    tdl_sched_push(&sched, &before);
    tdl_store_release_u32(&told, 1);
    turn();
    while (ran < 2) {
        model_pause();
        turn();
    }
}

static void poster_is_told(void)
{
    wait_until_told();
    MODEL_CHECK(tdl_inbox_post(&inbox, &remote.link) == 0);
}

static void finish_told(void)
{
    MODEL_CHECK(ran == 2 && order[0] == 'b' && order[1] == 'r');
}

/* The loop learns of the post, then pushes a local item. */
static void loop_is_told(void)
{
    tdl_sched_push(&sched, &before);
    wait_until_told();
    tdl_sched_push(&sched, &after);
    turn();
}

static void poster_tells(void)
{
    MODEL_CHECK(tdl_inbox_post(&inbox, &remote.link) == 0);
    tdl_store_release_u32(&told, 1);
}

static void finish_tells(void)
{
    unsigned at[128] = {0};
    MODEL_CHECK(ran == 3);
    for (unsigned i = 0; i < ran; i++) {
        at[(unsigned char)order[i]] = i;
    }
    MODEL_CHECK(at['r'] < at['a']);
    MODEL_CHECK(at['b'] < at['a']);
}

/* Nobody knows of the other: any place is right, but the mark must be there when the item is. */
static void loop_alone(void)
{
    tdl_sched_push(&sched, &before);
    turn();
    tdl_sched_push(&sched, &after);
    turn();
    while (ran < 3) {
        model_pause();
        turn();
    }
}

static void poster_alone(void)
{
    MODEL_CHECK(tdl_inbox_post(&inbox, &remote.link) == 0);
}

static void finish_alone(void)
{
    MODEL_CHECK(ran == 3);
}

int main(int argc, char **argv)
{
    static const struct model_scenario scenarios[] = {
        {"the poster knows of the local item", setup, {loop_tells, poster_is_told}, finish_told},
        {"the loop knows of the post", setup, {loop_is_told, poster_tells}, finish_tells},
        {"neither knows", setup, {loop_alone, poster_alone}, finish_alone},
    };
    return model_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
