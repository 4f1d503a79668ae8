#include "treadle/version.h"

const char *tdl_version(void)
{
    return TDL_VERSION;
}
