/* What the headers define inline, as symbols: in this file alone the word in front of each is empty. */
#define TDL_INLINE

#include "treadle/list.h"

#ifdef TDL_FFI_CORE
#include "treadle/sched.h"
#endif
#ifdef TDL_FFI_RING
#include "treadle/ring.h"
#endif
#ifdef TDL_FFI_FILEIO
#include "treadle/fileio.h"
#endif
