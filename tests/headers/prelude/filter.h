extern int fd;
bool poll_now(int descriptor);
