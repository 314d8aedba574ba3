/*
 * verbs_load.h -- libibverbs, which is loaded, not linked: what is taken of it, by name.
 */
#ifndef RB_TRANSPORT_VERBS_LOAD_H
#define RB_TRANSPORT_VERBS_LOAD_H

#include <stddef.h>

#include <infiniband/verbs.h>

#include "base/status.h"

/* libibverbs' functions, by their own names: it is loaded, not linked. Others are inline, by way of
 * the context. Those after the first line that not every version has may be NULL. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
/* clang-format off */
#define RB_VERBS_FUNCTIONS(X) \
	X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) \
	X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) X(ibv_query_port) \
	X(ibv_query_gid) X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_dereg_mr) \
	X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) \
	X(ibv_destroy_cq) X(ibv_get_cq_event) X(ibv_ack_cq_events) X(ibv_create_qp) \
	X(ibv_modify_qp) X(ibv_destroy_qp) X(ibv_create_ah) X(ibv_destroy_ah) \
	X(ibv_get_async_event) X(ibv_ack_async_event) X(ibv_wc_status_str) X(ibv_event_type_str)
#define RB_VERBS_FUNCTIONS_NEWER(X) X(_ibv_query_gid_ex) X(ibv_fork_init) X(ibv_reg_dmabuf_mr) \
	X(ibv_reg_mr_iova2)
/* clang-format on */
#define RB_VERBS_FUNCTION(name) __typeof__(name) *name;
struct rb_verbs_api {
	RB_VERBS_FUNCTIONS(RB_VERBS_FUNCTION)
	RB_VERBS_FUNCTIONS_NEWER(RB_VERBS_FUNCTION)
};

/* Errors: UNSUPPORTED (there is none that serves). */
RB_NODISCARD rubato_status rb_verbs_load(struct rb_verbs_api *api);
struct rb_verbs_symbol {
	const char *name;
	void **at;
};
/* All of these. Errors: UNSUPPORTED. */
RB_NODISCARD rubato_status rb_verbs_library_load(const char *library,
						 const struct rb_verbs_symbol *symbols,
						 size_t count);

#endif
