/* progress.c -- one line, redrawn or repeated. */
#include "trainer/records/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "programs/clock.h"

#define BAR_WIDTH 24
#define TERMINAL_NS UINT64_C(200000000) /* Between drawings. */
#define LINE_NS UINT64_C(5000000000)    /* Between lines. */

void tr_progress_open(struct tr_progress *progress, bool on, uint64_t first_step,
		      uint64_t step_count, uint64_t epoch_steps, uint64_t step_rows)
{
	*progress = (struct tr_progress) { .on = on,
					   .terminal = isatty(STDERR_FILENO) == 1,
					   .first_step = first_step,
					   .step_count = step_count,
					   .epoch_steps = epoch_steps,
					   .step_rows = step_rows,
					   .start_ns = clock_ns() };
	progress->next_ns = progress->start_ns + (progress->terminal ? TERMINAL_NS : LINE_NS);
}

static void draw_bar(uint64_t done, uint64_t all)
{
	uint64_t full = done * BAR_WIDTH / all;

	fputs("\r[", stderr);
	for (uint64_t i = 0; i < BAR_WIDTH; i++)
		fputc(i < full ? '#' : '.', stderr);
	fputs("] ", stderr);
}

static void show(struct tr_progress *p, uint64_t step, uint64_t now_ns)
{
	uint64_t done = step + 1, here = done - p->first_step;
	uint64_t epoch_count = (p->step_count + p->epoch_steps - 1) / p->epoch_steps;
	double seconds = (double)(now_ns - p->start_ns) * 1e-9;
	double left = seconds / (double)here * (double)(p->step_count - done);
	double loss = p->loss_rows == 0 ? 0.0 : p->loss_sum / (double)p->loss_rows;

	if (p->terminal)
		draw_bar(done, p->step_count);
	fprintf(stderr,
		"epoch %llu/%llu  step %llu/%llu  loss %.4f  %.0f samples/s  %d:%02d left%s",
		(unsigned long long)(step / p->epoch_steps + 1), (unsigned long long)epoch_count,
		(unsigned long long)done, (unsigned long long)p->step_count, loss,
		(double)(here * p->step_rows) / seconds, (int)left / 60, (int)left % 60,
		p->terminal ? "\x1b[K" : "\n");
	fflush(stderr);
	p->drawn = true;
	p->loss_sum = 0.0;
	p->loss_rows = 0;
}

void tr_progress_step(struct tr_progress *progress, uint64_t step, double loss, uint64_t rows)
{
	uint64_t now_ns;

	if (!progress->on)
		return;
	progress->loss_sum += loss;
	progress->loss_rows += rows;
	now_ns = clock_ns();
	if (now_ns < progress->next_ns)
		return;
	progress->next_ns = now_ns + (progress->terminal ? TERMINAL_NS : LINE_NS);
	show(progress, step, now_ns);
}

void tr_progress_rows(struct tr_progress *progress, const char *what, uint64_t done, uint64_t all)
{
	struct tr_progress *p = progress;
	uint64_t now_ns;

	if (!p->on || all == 0)
		return;
	now_ns = clock_ns();
	if (now_ns < p->next_ns)
		return;
	p->next_ns = now_ns + (p->terminal ? TERMINAL_NS : LINE_NS);
	if (p->terminal)
		draw_bar(done, all);
	fprintf(stderr, "%s: %llu of %llu rows%s", what, (unsigned long long)done,
		(unsigned long long)all, p->terminal ? "\x1b[K" : "\n");
	fflush(stderr);
	p->drawn = true;
}

void tr_progress_close(struct tr_progress *progress)
{
	if (progress->on && progress->terminal && progress->drawn)
		fputs("\r\x1b[K", stderr);
	progress->drawn = false;
}
