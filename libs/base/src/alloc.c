#include "treadle/alloc.h"

#include <stdlib.h>

#include "treadle/failpoint.h"

void *tdl_malloc(size_t size)
{
    return TDL_FAIL(TDL_FAIL_ALLOC) ? NULL : malloc(size);
}

void *tdl_calloc(size_t count, size_t size)
{
    return TDL_FAIL(TDL_FAIL_ALLOC) ? NULL : calloc(count, size);
}

void *tdl_realloc(void *block, size_t size)
{
    return TDL_FAIL(TDL_FAIL_ALLOC) ? NULL : realloc(block, size);
}

void tdl_free(void *block)
{
    free(block);
}
