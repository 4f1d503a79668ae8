void run(struct tdl_item *item);
