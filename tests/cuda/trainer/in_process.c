/*
 * in_process.c -- rubato-train as a library, for a process whose profiler records what its device
 * does (breakdown.py). main.c is compiled with it, with another name for its main.
 */
int rubato_train_main(int argc, const char **argv);
__attribute__((visibility("default"))) int trainer_run(int argc, const char **argv);

int trainer_run(int argc, const char **argv)
{
	return rubato_train_main(argc, argv);
}
