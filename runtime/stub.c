#include "runtime/bootstrap.h"
rubato_status rb_rendezvous_open(const struct rb_job *job, uint64_t d, struct rb_bootstrap **out){(void)job;(void)d;(void)out;return RUBATO_ERR_UNSUPPORTED;}
rubato_status rb_job_from_environment(const struct rb_config *c, struct rb_job *j, bool *f){(void)c;(void)f;__builtin_memset(j,0,sizeof *j);j->rank_count=1;return 0;}
rubato_status rb_job_make_id(rubato_id *id){(void)id;return RUBATO_ERR_UNSUPPORTED;}
rubato_status rb_job_from_id(const rubato_id *id, uint32_t r, uint32_t n, struct rb_job *j){(void)id;(void)r;(void)n;(void)j;return RUBATO_ERR_UNSUPPORTED;}
