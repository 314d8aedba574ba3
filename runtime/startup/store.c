/*
 * store.c -- see store.h: which store there is, and to whom its functions are.
 *
 * An MPI library in the same process speaks to the launcher over the same descriptor, or begins
 * and ends the same PMIx library, which bears that once (5.0 frees memory twice): we keep off it.
 */
#include "runtime/startup/store.h"

#include <link.h>
#include <string.h>

#include "base/config.h"

static bool given(const char *variable)
{
	const char *text = rb_config_foreign(variable);

	return text != NULL && *text != '\0';
}

enum rb_store_kind rb_store_find(void)
{
	if (given("PMIX_NAMESPACE") && given("PMIX_RANK"))
		return RB_STORE_PMIX;
	return given("PMI_FD") ? RB_STORE_PMI : RB_STORE_NONE;
}

const char *rb_store_name(enum rb_store_kind kind)
{
	return kind == RB_STORE_PMIX ? "PMIx" : "PMI";
}

static int mpi_find(struct dl_phdr_info *object, size_t bytes, void *found)
{
	const char *name = strrchr(object->dlpi_name, '/');

	(void)bytes;
	name = name != NULL ? name + 1 : object->dlpi_name;
	if (strncmp(name, "libmpi.so", 9) != 0 && strncmp(name, "libmpich.so", 11) != 0)
		return 0;
	*(const char **)found = name;
	return 1;
}

rubato_status rb_store_open(enum rb_store_kind kind, uint64_t deadline_ns, struct rb_store *store)
{
	const char *mpi = NULL;

	(void)dl_iterate_phdr(mpi_find, &mpi);
	if (mpi != NULL)
		return RB_FAIL(
			RUBATO_ERR_UNSUPPORTED,
			"this process has an MPI library (%.64s), which needs the launcher's "
			"%s for itself: start from MPI_Allgather (rubato_init_oob), or set "
			"RUBATO_ROOT",
			mpi, rb_store_name(kind));
	*store = (struct rb_store) { .kind = kind, .fd = -1 };
	return kind == RB_STORE_PMIX ? rb_store_pmix_open(store)
				     : rb_store_pmi_open(store, deadline_ns);
}

rubato_status rb_store_pass(struct rb_store *store, uint32_t rank, char *text, size_t text_bytes,
			    uint64_t deadline_ns)
{
	return store->kind == RB_STORE_PMIX
		       ? rb_store_pmix_pass(store, rank, text, text_bytes, deadline_ns)
		       : rb_store_pmi_pass(store, rank, text, text_bytes, deadline_ns);
}

void rb_store_close(struct rb_store *store)
{
	if (store->kind == RB_STORE_PMIX)
		rb_store_pmix_close(store);
	else
		rb_store_pmi_close(store);
}
