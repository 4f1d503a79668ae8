/* base alone: a queue, an allocation, the name of a status. */
#include <string.h>

#include <treadle/alloc.h>
#include <treadle/list.h>
#include <treadle/status.h>

int main(void)
{
    struct tdl_queue queue;
    struct tdl_link *link = (struct tdl_link *)tdl_calloc(1, sizeof *link);
    int good;

    if (link == NULL) {
        return 1;
    }
    tdl_queue_init(&queue);
    tdl_queue_push(&queue, link);
    good = tdl_queue_pop(&queue) == link && strcmp(tdl_status_name(TDL_ECLOSED), "ECLOSED") == 0;
    tdl_free(link);
    return good ? 0 : 1;
}
