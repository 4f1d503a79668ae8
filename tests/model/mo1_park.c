/* Goal: no interleaving of park and post loses a wake (MO-1) or writes the descriptor twice for one park
 * (MO-2). Method: explore a parker against one or two posters, with and without spinning; a lost wake shows as
 * every thread asleep. */
#include "model.h"

#include "treadle/inbox.h"
#include "treadle/wake.h"

static struct tdl_wake wake;
static struct tdl_inbox inbox;
static struct tdl_link links[2];
static unsigned parks;
static unsigned wanted;

static void setup_with(uint64_t spin_ns, unsigned posts)
{
    struct tdl_wake_options options = {spin_ns};
    (void)tdl_wake_open(&wake, &options);
    tdl_inbox_init(&inbox, &wake, NULL);
    model_name(&wake.state, "wake.state");
    model_name(&inbox.head, "inbox.head");
    model_name(&inbox.gate, "inbox.gate");
    model_name(&links[0], "first link");
    model_name(&links[1], "second link");
    parks = 0;
    wanted = posts;
}

static void setup_one(void)
{
    setup_with(0, 1);
}

static void setup_two(void)
{
    setup_with(0, 2);
}

static void setup_spinning(void)
{
    setup_with(1, 1);
}

static unsigned take_all(void)
{
    unsigned count = 0;
    const struct tdl_link *last = NULL;
    for (const struct tdl_link *link = tdl_inbox_take(&inbox); link != NULL; link = link->next) {
        model_plain_read(link);
        /* Where one thread posts both, they come in its order. */
        MODEL_CHECK(last == NULL || last->user == 0 || link->user == 0 || last->user < link->user);
        last = link;
        count++;
    }
    return count;
}

static void parker(void)
{
    for (unsigned got = 0; got < wanted; got += take_all()) {
        tdl_wake_park_begin(&wake);
        parks++;
        if (tdl_inbox_is_empty(&inbox))
            MODEL_CHECK(tdl_wake_wait(&wake, UINT64_MAX) == 0);
        (void)tdl_wake_park_end(&wake);
        MODEL_CHECK(model_eventfd_writes() <= parks);
    }
}

static void post_first(void)
{
    links[0].user = 0;
    MODEL_CHECK(tdl_inbox_post(&inbox, &links[0]) == 0);
}

static void post_second(void)
{
    links[1].user = 0;
    MODEL_CHECK(tdl_inbox_post(&inbox, &links[1]) == 0);
}

static void post_both(void)
{
    links[0].user = 1;
    links[1].user = 2;
    MODEL_CHECK(tdl_inbox_post(&inbox, &links[0]) == 0);
    MODEL_CHECK(tdl_inbox_post(&inbox, &links[1]) == 0);
}

static void finish(void)
{
    MODEL_CHECK(model_eventfd_writes() <= parks);
    /* What the descriptor still holds is what the owner knows it is owed. */
    MODEL_CHECK(model_eventfd_value() == wake.owed);
}

int main(int argc, char **argv)
{
    static const struct model_scenario scenarios[] = {
        {"one post", setup_one, {parker, post_first}, finish},
        {"one post while spinning", setup_spinning, {parker, post_first}, finish},
        {"two posts of one thread", setup_two, {parker, post_both}, finish},
        {"two posters", setup_two, {parker, post_first, post_second}, finish},
    };
    return model_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
