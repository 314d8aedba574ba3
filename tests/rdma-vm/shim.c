/*
 * shim.c -- preloaded: three things that libibverbs and Soft-RoCE do not do by themselves.
 *
 * RDMA_VM_WRONG_KEY=1: what is registered for peers to write into gets a key that is nobody's.
 * RDMA_VM_NOT_READY=1: receives of connected queue pairs are posted RECEIVES times, and no more.
 * ibv_reg_dmabuf_mr(): rdma-core's driver of Soft-RoCE lacks it, so it goes to the kernel, whose
 * module must know it (see modules).
 *
 * The library looks its functions up in libibverbs alone; so dlopen() of that gives what the
 * program sees, in which this file comes first.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#undef ibv_reg_mr
#define SEEN __attribute__((visibility("default")))
#define RECEIVES 200 /* Past what is posted when a queue pair is made. */
#define MR_BYTES 512 /* Room for the driver's own struct around it, which it frees. */

/* Exported for drivers; in a header of theirs. */
int ibv_cmd_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
			  int access, void *mr);

static void next(const char *name, void *function)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found == NULL) {
		(void)fprintf(stderr, "shim: there is no %s\n", name);
		abort();
	}
	memcpy(function, &found, sizeof(found));
}

SEEN void *dlopen(const char *file, int flags)
{
	void *(*open)(const char *, int);

	next("dlopen", &open);
	return open(file != NULL && strcmp(file, "libibverbs.so.1") == 0 ? NULL : file, flags);
}

SEEN struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
				     unsigned int access)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);
	struct ibv_mr *mr;

	next("ibv_reg_mr_iova2", &reg);
	mr = reg(pd, address, length, iova, access);
	if (mr != NULL && (access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
	    getenv("RDMA_VM_WRONG_KEY") != NULL)
		mr->rkey ^= 0xff;
	return mr;
}

static int (*post_receive)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

static int post_few(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	static unsigned posted;

	return qp->qp_type == IBV_QPT_RC && posted++ >= RECEIVES ? 0 : post_receive(qp, wr, bad);
}

/* Posting is inline, by way of the context. */
SEEN struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *(*create)(struct ibv_pd *, struct ibv_qp_init_attr *), *qp;

	next("ibv_create_qp", &create);
	qp = create(pd, attr);
	if (qp != NULL && getenv("RDMA_VM_NOT_READY") != NULL &&
	    qp->context->ops.post_recv != post_few) {
		post_receive = qp->context->ops.post_recv;
		qp->context->ops.post_recv = post_few;
	}
	return qp;
}

SEEN struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
				      uint64_t iova, int fd, int access)
{
	struct ibv_mr *mr = calloc(1, MR_BYTES);
	int error;

	if (mr == NULL)
		return NULL;
	error = ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, mr);
	if (error != 0) {
		free(mr);
		errno = error;
		return NULL;
	}
	mr->context = pd->context;
	mr->pd = pd;
	mr->length = length;
	return mr;
}
