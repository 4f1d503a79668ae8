/* Goal: when close has returned, no poster touches the wake, the mark source or the list any more, each post
 * was either accepted and given back or refused, and every access is ordered before what the closer does next
 * (MO-3). Method: explore posters against a closer that lets the memory go. */
#include "model.h"

#include "treadle/inbox.h"
#include "treadle/status.h"
#include "treadle/wake.h"

static struct tdl_wake wake;
static struct tdl_inbox inbox;
static tdl_atomic_u32 mark;
static struct tdl_link links[2];
static int results[2];
static bool came_back[2];

static void setup(void)
{
    (void)tdl_wake_open(&wake, NULL);
    tdl_atomic_init_u32(&mark, 1);
    tdl_inbox_init(&inbox, &wake, &mark);
    model_name(&wake.state, "wake.state");
    model_name(&inbox.head, "inbox.head");
    model_name(&inbox.gate, "inbox.gate");
    model_name(&mark, "mark");
    model_name(&links[0], "first link");
    model_name(&links[1], "second link");
    for (int i = 0; i < 2; i++) {
        results[i] = 1;
        came_back[i] = false;
    }
}

static void post_first(void)
{
    results[0] = tdl_inbox_post(&inbox, &links[0]);
}

static void post_second(void)
{
    results[1] = tdl_inbox_post(&inbox, &links[1]);
}

static void post_both(void)
{
    post_first();
    post_second();
}

static void collect(const struct tdl_link *list)
{
    for (; list != NULL; list = list->next) {
        model_plain_read(list);
        MODEL_CHECK(!came_back[list - links]);
        came_back[list - links] = true;
    }
}

static void closer(void)
{
    collect(tdl_inbox_close(&inbox));
    model_kill(&wake.state);
    model_kill(&mark);
    model_kill(&inbox.head);
}

static void parked_closer(void)
{
    tdl_wake_park_begin(&wake);
    (void)tdl_wake_park_end(&wake);
    collect(tdl_inbox_take(&inbox));
    closer();
}

static void finish(void)
{
    for (int i = 0; i < 2; i++) {
        MODEL_CHECK(results[i] == 1 || results[i] == 0 || results[i] == TDL_ECLOSED);
        MODEL_CHECK(came_back[i] == (results[i] == 0));
    }
}

int main(int argc, char **argv)
{
    static const struct model_scenario scenarios[] = {
        {"one poster", setup, {closer, post_first}, finish},
        {"one poster, closer was parked", setup, {parked_closer, post_first}, finish},
        {"two posts of one thread", setup, {closer, post_both}, finish},
        {"two posters", setup, {closer, post_first, post_second}, finish},
    };
    return model_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
