#include "treadle/lookup.h"
#include "treadle/status.h"

int tdl_eai_status(int eai)
{
    switch (eai) {
    case 0:
        return TDL_OK;
    case EAI_ADDRFAMILY:
        return TDL_EAI_ADDRFAMILY;
    case EAI_AGAIN:
        return TDL_EAI_AGAIN;
    case EAI_BADFLAGS:
        return TDL_EAI_BADFLAGS;
    case EAI_CANCELED:
        return TDL_EAI_CANCELED;
    case EAI_FAMILY:
        return TDL_EAI_FAMILY;
    case EAI_MEMORY:
        return TDL_EAI_MEMORY;
    case EAI_NODATA:
        return TDL_EAI_NODATA;
    case EAI_NONAME:
        return TDL_EAI_NONAME;
    case EAI_OVERFLOW:
        return TDL_EAI_OVERFLOW;
    case EAI_SERVICE:
        return TDL_EAI_SERVICE;
    case EAI_SOCKTYPE:
        return TDL_EAI_SOCKTYPE;
    case EAI_SYSTEM:
        return TDL_EAI_SYSTEM;
    default:
        return TDL_EAI_FAIL;
    }
}
