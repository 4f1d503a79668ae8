extern int fd;
extern char buffer[64];
