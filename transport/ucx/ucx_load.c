/*
 * ucx_load.c -- UCX as a guest: loaded when a job needs it, and kept from what is the process's.
 *
 * The library is not linked: jobs on one machine never load it, and run where it is not installed.
 * Its functions come from here, by name. When it is loaded it takes signal handlers (of faults, and
 * SIGHUP's) and the loading thread's alternate stack; the handlers are given back at once, the
 * thread is one of ours and ends. That thread makes the worker, too: UCX's own thread then blocks
 * all signals as it does, and that no thread can be started is found here, where it is an
 * error: UCX would end the process.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include "base/log.h"
#include "base/sync.h"
#include "transport/ucx/ucx.h"

#ifndef RB_UCX_FOLDER
#define RB_UCX_FOLDER "" /* Wherever the system has it. */
#endif

#define LIBRARY "libucp.so.0"                         /* It brings the others. */
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) /* It cannot be unloaded. */

struct handlers {
	struct sigaction action[_NSIG];
};

static _Thread_local bool unused_option; /* UCX said so, in this thread. */

bool rb_ucx_option_unused(void)
{
	bool was = unused_option;

	unused_option = false;
	return was;
}

void rb_ucx_option_unknown(const char *name)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&told))
		RB_LOG(RB_LOG_WARN, "UCX does not know its option %s", name);
#ifdef RB_ASSERT_ABORTS
	RB_ASSERT(!"UCX knows its options"); /* Those that it is given here. */
#endif
}

/* UCX would print to standard output. What it reports as an error becomes a status of ours. */
static ucs_log_func_rc_t log_line(const char *file, unsigned line, const char *function,
				  ucs_log_level_t level,
				  const ucs_log_component_config_t *component, const char *message,
				  va_list args)
{
	enum rb_log_level ours = level == UCS_LOG_LEVEL_FATAL  ? RB_LOG_WARN
				 : level <= UCS_LOG_LEVEL_WARN ? RB_LOG_INFO
							       : RB_LOG_DEBUG;
	char text[400];

	(void)function, (void)component;
	unused_option |=
		level == UCS_LOG_LEVEL_WARN && strncmp(message, "invalid configuration", 21) == 0;
	if (rb_log_enabled(ours)) {
		(void)vsnprintf(text, sizeof(text), message, args);
		rb_log_line(ours, "UCX: %s (%s:%u)", text, file, line);
	}
	return UCS_LOG_FUNC_RC_STOP;
}

/* ---- Handlers ---- */

static void handlers_save(struct handlers *h)
{
	memset(h, 0, sizeof(*h));
	for (int s = 1; s < _NSIG; s++)
		(void)sigaction(s, NULL, &h->action[s]);
}

/* Where the object that holds this address begins. */
static const void *object_of(uintptr_t address)
{
	Dl_info info;

	return dladdr((void *)address, &info) != 0 ? info.dli_fbase : NULL;
}

static bool handled_by(int s, const void *object)
{
	struct sigaction now;

	return sigaction(s, NULL, &now) == 0 && now.sa_handler != SIG_DFL &&
	       now.sa_handler != SIG_IGN && object_of((uintptr_t)now.sa_handler) == object;
}

/* UCX forgets them, too: at the end of the process it would put back what it has replaced. */
static void handlers_give_back(const struct rb_ucx_api *api, const struct handlers *h)
{
	const void *ucs = object_of((uintptr_t)api->ucs_debug_disable_signal);

	for (int s = 1; s < _NSIG; s++) {
		if (!handled_by(s, ucs))
			continue;
		api->ucs_debug_disable_signal(s);
		if (handled_by(s, ucs))
			(void)sigaction(s, &h->action[s], NULL);
	}
}

/* ---- Loading ---- */

static rubato_status functions_find(void *library, struct rb_ucx_api *api)
{
#define FUNCTION(name) { #name, (void **)(void *)&api->name },
	const struct {
		const char *name;
		void **at;
	} functions[] = { RB_UCX_FUNCTIONS(FUNCTION) };

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		*functions[i].at = dlsym(library, functions[i].name);
		if (*functions[i].at == NULL)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "UCX on this machine has no %s: it is older than 1.13",
				       functions[i].name);
	}
	return RUBATO_OK;
#undef FUNCTION
}

static rubato_status load(struct rb_ucx_api *api)
{
	/* One that is here already is somebody else's, and so are its handlers; two do not mix. */
	void *library = dlopen(LIBRARY, FLAGS | RTLD_NOLOAD);
	struct handlers handlers;
	Dl_info own;

	if (library != NULL)
		return functions_find(library, api);
	handlers_save(&handlers);
	library = dlopen(RB_UCX_FOLDER LIBRARY, FLAGS);
	if (library == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "UCX cannot be loaded: %s", dlerror());
	RB_TRY(functions_find(library, api));
	handlers_give_back(api, &handlers);
	/* Its log comes to us from now on: this code stays, too. */
	if (dladdr((void *)(uintptr_t)log_line, &own) != 0)
		(void)dlopen(own.dli_fname, FLAGS | RTLD_NOLOAD);
	api->ucs_log_push_handler(log_line);
	RB_LOG(RB_LOG_INFO, "UCX %s was loaded", api->ucp_get_version_string());
	return RUBATO_OK;
}

rubato_status rb_ucx_load(struct rb_ucx_api *api)
{
	static atomic_flag loading = ATOMIC_FLAG_INIT; /* The process's, as what it guards is. */
	rubato_status status;

	while (atomic_flag_test_and_set(&loading))
		rb_yield();
	status = load(api);
	atomic_flag_clear(&loading);
	return status;
}

/* ---- A thread to begin in ---- */

struct beginning {
	rubato_status (*begin)(void *arg);
	void *arg;
	rubato_status status;
	char text[400]; /* An error's is its thread's. */
};

static void *nothing(void *arg)
{
	return arg;
}

static void *beginning_main(void *arg)
{
	struct beginning *b = arg;
	struct rb_thread one_more; /* UCX's own. */

	b->status = rb_thread_start(&one_more, nothing, NULL);
	rb_thread_join(&one_more);
	if (b->status == RUBATO_OK)
		b->status = b->begin(b->arg);
	else
		(void)RB_FAIL(
			b->status,
			"UCX needs a thread of its own, and none could be started (ulimit -u?)");
	(void)snprintf(b->text, sizeof(b->text), "%s", rubato_error_text());
	return NULL;
}

rubato_status rb_ucx_begin(rubato_status (*begin)(void *arg), void *arg)
{
	struct beginning b = { .begin = begin, .arg = arg };
	struct rb_thread thread;

	if (rb_thread_start(&thread, beginning_main, &b) != RUBATO_OK)
		return RB_FAIL(
			RUBATO_ERR_MEMORY,
			"UCX needs threads of its own, and none could be started (ulimit -u?)");
	rb_thread_join(&thread);
	return b.status == RUBATO_OK ? RUBATO_OK : RB_FAIL(b.status, "%s", b.text);
}
