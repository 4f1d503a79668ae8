#include "treadle/fileio.h"

extern struct tdl_fio fio;
extern int fd;
extern char buffer[64];
