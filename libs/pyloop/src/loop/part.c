/* What the folders above do for a loop, by the list that module.c has made. */
#include "loop/handle.h"
#include "loop/loop.h"
#include "loop/registry.h"
#include "loop/snapshot.h"

/* A loop whose making failed early has none. */
const struct tdl_part *const *tdl__parts_of(const TdlLoop *loop)
{
    static const struct tdl_part *const none[] = {NULL};
    return loop->state != NULL ? loop->state->parts : none;
}

int tdl__parts_open(TdlLoop *loop)
{
    int code = 0;
    for (const struct tdl_part *const *part = tdl__parts_of(loop); code == 0 && *part != NULL; part++) {
        code = (*part)->open != NULL ? (*part)->open(loop) : 0;
    }
    return code;
}

void tdl__parts_close(TdlLoop *loop)
{
    for (const struct tdl_part *const *part = tdl__parts_of(loop); *part != NULL; part++) {
        if ((*part)->close != NULL) {
            (*part)->close(loop);
        }
    }
}

void tdl__parts_clear(TdlLoop *loop)
{
    for (const struct tdl_part *const *part = tdl__parts_of(loop); *part != NULL; part++) {
        if ((*part)->clear != NULL) {
            (*part)->clear(loop);
        }
    }
}

void tdl__parts_release(TdlLoop *loop)
{
    for (const struct tdl_part *const *part = tdl__parts_of(loop); *part != NULL; part++) {
        if ((*part)->release != NULL) {
            (*part)->release(loop);
        }
    }
}
