/*
 * config.h -- every setting, in one table: name, default, bounds, help. The environment is read
 * once, when a communicator opens; the struct is const afterwards. rubato-info --config prints the
 * table with where each value came from. A bad value is an error that names variable, value and
 * range; an unknown RUBATO_* variable is a warning with the nearest name. Ceiling: 30 settings.
 */
#ifndef RB_BASE_CONFIG_H
#define RB_BASE_CONFIG_H

#include "base/status.h"

/* kind: U (unsigned), S (text), T (time), B (bytes).   field, variable, kind, default, min, max,
 * help */
#define RB_CONFIG_TABLE(X)                                                                         \
	X(rank, "RUBATO_RANK", U, "", 0, 4294967294, "this process's rank, from 0")                \
	X(size, "RUBATO_SIZE", U, "", 1, 4294967295, "number of ranks in the job")                 \
	X(root, "RUBATO_ROOT", S, "", 0, 255, "host:port at which rank 0 gathers the job")         \
	X(secret_file, "RUBATO_SECRET_FILE", S, "", 0, 4095,                                       \
	  "file with the job's secret, 16 to 64 bytes, readable by its owner only")                \
	X(insecure, "RUBATO_INSECURE", U, "0", 0, 1, "1: serve other machines without a secret")   \
	X(timeout, "RUBATO_TIMEOUT", T, "60s", 1000000, 86400000000000,                            \
	  "deadline of every wait that has none of its own")                                       \
	X(transport, "RUBATO_TRANSPORT", S, "auto", 0, 15,                                         \
	  "auto, or of shm, ucx, tcp, verbs, best first")                                          \
	X(interface, "RUBATO_INTERFACE", S, "", 0, 255,                                            \
	  "network devices to use: names or their beginnings; ^ before them: all others")          \
	X(heap, "RUBATO_HEAP", B, "0", 4096, 35184372088832,                                       \
	  "address space for rubato_alloc on a rank; 0: as much as the machine has memory")        \
	X(attach, "RUBATO_ATTACH", S, "auto", 0, 15, "auto, never or offer")                       \
	X(verbs_connect, "RUBATO_VERBS_CONNECT", S, "auto", 0, 15,                                 \
	  "how verbs connects its queue pairs: auto, exchange or rdmacm")                          \
	X(verbs_resend, "RUBATO_VERBS_RESEND", T, "67ms", 1000000, 8000000000,                     \
	  "verbs: how long a device waits for an answer before it sends again, six times")         \
	X(verbs_cache, "RUBATO_VERBS_CACHE", B, "1G", 0, 70368744177664,                           \
	  "verbs: how much plain memory stays registered, of all rails; 0: none")                  \
	X(ucx_device, "RUBATO_UCX_DEVICE", U, "0", 0, 1,                                           \
	  "1: ucx gives UCX device memory as it is, if UCX handles CUDA's (docs/gpu.md)")          \
	X(cuda, "RUBATO_CUDA", S, "auto", 0, 15,                                                   \
	  "auto (the CUDA device that is current at start-up), off, or a device's number")         \
	X(chunk, "RUBATO_CHUNK", B, "256K", 64, 268435456, "largest chunk of a pipelined step")    \
	X(cache, "RUBATO_CACHE", U, "256", 1, 65536, "plans kept for one-shot collectives")        \
	X(spin, "RUBATO_SPIN", T, "0", 0, 1000000000,                                              \
	  "how long a wait polls before it sleeps; 0: measured at start-up")                       \
	X(background, "RUBATO_BACKGROUND", U, "1", 0, 1,                                           \
	  "0: no progress thread, progress only inside calls")                                     \
	X(background_cpus, "RUBATO_BACKGROUND_CPUS", S, "", 0, 15,                                 \
	  "where the progress thread may run: numa (this rank's domain), or a processor's number") \
	X(spread, "RUBATO_SPREAD", U, "1", 0, 1,                                                   \
	  "0: ranks that are more on one core than on others stay there")                          \
	X(measure, "RUBATO_MEASURE", U, "1", 0, 1,                                                 \
	  "0: what links and memory cost is not measured; without a profile it is guessed")        \
	X(profile, "RUBATO_PROFILE", S, "", 0, 1023,                                               \
	  "file with what links and memory cost, in place of what is measured or guessed")         \
	X(algorithm, "RUBATO_ALGORITHM", S, "", 0, 255,                                            \
	  "forces algorithms: operation=name[,operation=name...]")                                 \
	X(log, "RUBATO_LOG", S, "warn", 0, 15, "none, warn, info, debug or data")

enum rb_config_source { RB_CONFIG_DEFAULT, RB_CONFIG_ENVIRONMENT, RB_CONFIG_OPTIONS };

/* Bytes of a text, by kind. */
#define RB_CONFIG_TEXT_U(max) 1
#define RB_CONFIG_TEXT_S(max) ((max) + 1)
#define RB_CONFIG_TEXT_T(max) 1
#define RB_CONFIG_TEXT_B(max) 1

struct rb_config { /* number: U, B; T in ns. text: S. */
#define X(field, variable, kind, default_value, min, max, help)                                    \
	union {                                                                                    \
		uint64_t number;                                                                   \
		char text[RB_CONFIG_TEXT_##kind(max)];                                             \
	} field;
	RB_CONFIG_TABLE(X)
#undef X
	struct {
#define X(field, variable, kind, default_value, min, max, help) uint8_t field;
		RB_CONFIG_TABLE(X)
#undef X
	} source; /* enum rb_config_source; DEFAULT with an empty default means not set. */
};

/* Reads the environment (an empty variable counts as not set), sets the log level, then warns about
 * unknown RUBATO_* names. `config` is written on success only. Errors: ARGUMENT, MEMORY. */
RB_NODISCARD rubato_status rb_config_read(struct rb_config *config);
/* What the caller's options say instead, within the same bounds. */
RB_NODISCARD rubato_status rb_config_set(struct rb_config *config, const char *variable,
					 const char *text);

/* A variable of somebody else, such as a launcher's; NULL: not set. */
const char *rb_config_foreign(const char *variable);

/* For rubato-info: calls row() once per setting. Values of secret files are paths, never
 * contents. */
void rb_config_each(const struct rb_config *config,
		    void (*row)(void *arg, const char *variable, const char *value,
				const char *source, const char *help),
		    void *arg);

/* Digits with at most one point among them, whatever the locale: the value is *digits / *scale.
 * Returns where it ends; NULL: there are none, or too many. */
const char *rb_parse_decimal(const char *text, uint64_t *digits, uint64_t *scale);
/* "64", "64K", "1.5M", "2G", "1T" (binary); "0", "250us", "1.5ms", "3s": exact or ARGUMENT. */
RB_NODISCARD rubato_status rb_parse_bytes(const char *text, uint64_t *bytes);
RB_NODISCARD rubato_status rb_parse_time(const char *text, uint64_t *time_ns);
/* Its inverse. */
void rb_print_time(uint64_t time_ns, char *text, size_t text_bytes);

#endif
