/* backend_sim.c -- ranks as fibers, in virtual time: a flat network. */
#include "tests/conformance/conformance.h"

#include "transport/sim/sim_world.h"

struct program {
	void (*rank_main)(void *arg, uint32_t rank);
	void *arg;
};

static void *world_open(uint32_t rank_count)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	struct rb_sim_world *world;

	options.rank_count = rank_count;
	options.seed = 7 + rank_count;
	options.jitter = 2.0;
	ck_assert_int_eq(rb_sim_world_open(&options, &world), RUBATO_OK);
	return world;
}

static void world_close(void *world)
{
	rb_sim_world_close(world);
}

static rubato_status rank_run(struct rb_sim_seat *seat, void *arg)
{
	struct program *program = arg;

	program->rank_main(program->arg, rb_sim_seat_rank(seat));
	return RUBATO_OK;
}

static bool run(void *world, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	struct program program = { rank_main, arg };

	(void)rank_count;
	return rb_sim_world_run(world, rank_run, &program) == RUBATO_OK;
}

const struct conform_backend conform_backend = {
	.name = "sim",
	.ops = &rb_transport_sim,
	.no_map = true,
	.world_open = world_open,
	.world_close = world_close,
	.run = run,
};
