/*
 * job_launcher.c -- places in a job as launchers tell them: torchrun, Open MPI, Slurm, PMI.
 *
 * The first complete set of variables wins. All say rank and size, only torchrun an address; but
 * its own store listens at that port, so our root takes the first free one of the sixteen above it.
 * The others try them all, and know theirs by a nonce made of what names the run. Where a launcher
 * names its run, and says that it is on one machine, the same is done on the loopback device.
 * On several machines ranks meet by what the launcher stores for them (store.h), and without that
 * on the first of Slurm's nodes, where it starts rank 0.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "runtime/startup/bootstrap.h"
#include "runtime/startup/endpoint.h"

#define LOCAL_PORT 20000     /* Below the ports that systems give out by themselves. */
#define LOCAL_PORT_SPANS 700 /* Of RB_ENDPOINTS_MAX ports each. */
#define NAMES_MAX 2

struct launcher {
	const char *name, *rank, *size;
	const char *local_size;       /* NULL: not said. */
	const char *nodes;            /* Number of machines; NULL: not said. */
	const char *run[NAMES_MAX];   /* Together they name the run; "": none do. */
	const char *needs[NAMES_MAX]; /* Without these the set is not complete. */
};

static const struct launcher launchers[] = {
	{ "torchrun",
	  "RANK",
	  "WORLD_SIZE",
	  "LOCAL_WORLD_SIZE",
	  NULL,
	  { "MASTER_PORT", "TORCHELASTIC_RUN_ID" },
	  { "MASTER_ADDR", "MASTER_PORT" } },
	{ "Open MPI",
	  "OMPI_COMM_WORLD_RANK",
	  "OMPI_COMM_WORLD_SIZE",
	  "OMPI_COMM_WORLD_LOCAL_SIZE",
	  NULL,
	  { "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid" },
	  { NULL, NULL } },
	{ "Slurm",
	  "SLURM_PROCID",
	  "SLURM_STEP_NUM_TASKS",
	  NULL,
	  "SLURM_STEP_NUM_NODES",
	  { "SLURM_JOB_ID", "SLURM_STEP_ID" },
	  { "SLURM_JOB_ID", "SLURM_STEP_ID" } },
	{ "PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", NULL, { NULL, NULL }, { NULL, NULL } },
};

static const char *value_of(const char *variable)
{
	const char *text = variable != NULL ? rb_config_foreign(variable) : NULL;

	return text != NULL && *text != '\0' ? text : NULL;
}

static rubato_status number_of(const struct launcher *l, const char *variable, uint64_t min,
			       uint64_t max, uint64_t *number)
{
	const char *text = value_of(variable);
	char *end = NULL;

	*number = text != NULL ? strtoull(text, &end, 10) : 0;
	if (text == NULL || *end != '\0' || *text < '0' || *text > '9' || *number < min ||
	    *number > max)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "%s's %s=\"%.64s\": expected a whole number from %llu to %llu",
			       l->name, variable, text != NULL ? text : "", (unsigned long long)min,
			       (unsigned long long)max);
	return RUBATO_OK;
}

static bool complete(const struct launcher *l)
{
	for (size_t i = 0; i < NAMES_MAX; i++)
		if (l->needs[i] != NULL && value_of(l->needs[i]) == NULL)
			return false;
	return value_of(l->rank) != NULL && value_of(l->size) != NULL;
}

static bool on_one_machine(const struct launcher *l)
{
	const char *size = value_of(l->size), *local = value_of(l->local_size);
	const char *nodes = value_of(l->nodes);

	return (local != NULL && strcmp(local, size) == 0) ||
	       (nodes != NULL && strcmp(nodes, "1") == 0);
}

/* False: nothing tells this run from others. */
static bool run_hash(const struct launcher *l, uint8_t nonce[16])
{
	crypto_generichash_state state;
	bool any = false;

	(void)crypto_generichash_init(&state, NULL, 0, 16);
	(void)crypto_generichash_update(&state, (const uint8_t *)l->name, strlen(l->name) + 1);
	for (size_t i = 0; i < NAMES_MAX; i++) {
		const char *text = value_of(l->run[i]);

		any |= text != NULL;
		text = text != NULL ? text : "";
		(void)crypto_generichash_update(&state, (const uint8_t *)text, strlen(text) + 1);
	}
	(void)crypto_generichash_final(&state, nonce, 16);
	return any;
}

/* "node[03-05,9]x,other" begins with node03x. False: none, or longer than `host`. */
static bool first_node(const char *list, char *host, size_t host_bytes)
{
	size_t at = 0;

	while (*list != '\0' && *list != ',' && at + 1 < host_bytes) {
		if (*list != '[') {
			host[at++] = *list++;
			continue;
		}
		for (list++; *list >= '0' && *list <= '9' && at + 1 < host_bytes; list++)
			host[at++] = *list;
		list += strcspn(list, "]");
		if (*list++ != ']')
			return false;
	}
	host[at] = '\0';
	return at > 0 && (*list == '\0' || *list == ',');
}

static void root_print(struct rb_job *job, const char *host, uint32_t port)
{
	bool brackets = strchr(host, ':') != NULL;
	uint32_t last = port + RB_ENDPOINTS_MAX - 1;

	(void)snprintf(job->root, sizeof(job->root), "%s%.200s%s:%u-%u", brackets ? "[" : "", host,
		       brackets ? "]" : "", port, last < 65535 ? last : 65535);
}

static rubato_status root_find(const struct launcher *l, const char *own_root, struct rb_job *job)
{
	const char *address = value_of("MASTER_ADDR");
	bool torchrun = l == &launchers[0], slurm = strcmp(l->name, "Slurm") == 0;
	bool named = run_hash(l, job->nonce), local = on_one_machine(l);
	const char *nodes = slurm ? value_of("SLURM_STEP_NODELIST") : NULL;
	uint64_t span = (job->nonce[0] | (uint64_t)job->nonce[1] << 8) % LOCAL_PORT_SPANS;
	uint64_t port = LOCAL_PORT + RB_ENDPOINTS_MAX * span;
	char node[128];

	if (own_root[0] != '\0') {
		(void)snprintf(job->root, sizeof(job->root), "%.255s", own_root);
		return RUBATO_OK;
	}
	if (torchrun) {
		RB_TRY(number_of(l, "MASTER_PORT", 1, 65534, &port));
		root_print(job, local ? "127.0.0.1" : address, (uint32_t)port + 1);
	} else if (local && named) {
		root_print(job, "127.0.0.1", (uint32_t)port);
	} else if (rb_store_find() != RB_STORE_NONE) {
		job->store = rb_store_find();
		return RUBATO_OK;
	} else if (nodes != NULL && first_node(nodes, node, sizeof(node))) {
		root_print(job, node, (uint32_t)port);
	} else {
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "%s started this process as rank %u of %u, but says no address at "
			       "which ranks can meet, and has no store (PMI_FD, PMIX_NAMESPACE): "
			       "set RUBATO_ROOT to host:port of rank 0's "
			       "machine on all of them, or start from an allgather "
			       "(rubato_init_oob)",
			       l->name, job->rank, job->rank_count);
	}
	job->searches = true;
	return RUBATO_OK;
}

rubato_status rb_job_from_launcher(const char *own_root, struct rb_job *job, const char **name)
{
	uint64_t rank, size;

	*name = NULL;
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		const struct launcher *l = &launchers[i];

		if (!complete(l))
			continue;
		RB_TRY(number_of(l, l->size, 1, UINT32_MAX, &size));
		RB_TRY(number_of(l, l->rank, 0, size - 1, &rank));
		job->rank = (uint32_t)rank;
		job->rank_count = (uint32_t)size;
		if (size > 1)
			RB_TRY(root_find(l, own_root, job));
		*name = l->name;
		return RUBATO_OK;
	}
	return RUBATO_OK;
}
